package hcpapps

import "github.com/densityops/oooi/plugins/internal/views"

// requests counts queries inside the plugin's zones by what became of them.
var requests = views.NewRequests(name)
