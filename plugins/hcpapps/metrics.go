package hcpapps

import "github.com/densityops/oooi/plugins/internal/views"

// requests counts queries in the plugin's zones.
var requests = views.NewRequests(name)
