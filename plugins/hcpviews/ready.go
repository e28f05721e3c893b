package hcpviews

import (
	"log/slog"

	"github.com/densityops/oooi/internal/audit"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/plugins/internal/views"
)

// Ready implements ready.Readiness. It returns true when every server block has loaded objects, even from the
// snapshot file.
func (h *HCPViews) Ready() bool { return h.Loaded() }

// Snapshots returns the snapshot of hosted clusters and Infras for each configuration of the plugin.
func Snapshots() []*model.Snapshot { return views.Snapshots() }

// Statuses returns the state of the store of each of the plugin's configurations.
func Statuses() []watch.Status { return views.Statuses() }

// Logger returns a logger that writes to CoreDNS's log under the name of the plugin.
func Logger() *slog.Logger { return views.NewLogger(name) }

// Unlisted returns the names that clients of VLANs queried and that no record has, of the last hour.
func Unlisted() *audit.Log { return views.Unlisted() }
