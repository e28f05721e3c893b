// Package watch keeps a model.Snapshot up to date: it watches the objects of an API server, or polls a folder of files, and builds a new
// Snapshot within milliseconds of a change.
//
// A Store never loses what it knows. While the API server is unavailable, the last snapshot stays in use; if the
// process restarts during the outage, it starts from the snapshot file.
package watch
