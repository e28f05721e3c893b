package hcpviews

import (
	"context"

	"github.com/coredns/coredns/plugin/metadata"
	"github.com/coredns/coredns/request"

	"github.com/densityops/oooi/plugins/internal/views"
)

// Metadata implements metadata.Provider: hcpviews/view is the name of the client's
// view, empty for a client that has none.
func (h *HCPViews) Metadata(ctx context.Context, state request.Request) context.Context {
	remote := state.W.RemoteAddr()
	metadata.SetValueFunc(ctx, "hcpviews/view", func() string {
		table := h.tables.Table()
		if table == nil {
			return ""
		}
		sight := table.Sight(views.ClientAddr(remote))
		if sight == nil {
			return ""
		}
		return sight.View
	})
	return ctx
}
