// Package watch keeps a model.Snapshot up to date: it watches the objects of an API server, or polls a directory
// of files, and builds a new Snapshot within milliseconds of a change.
//
// While the API server is unavailable, a Store keeps the last snapshot. If the process restarts during the
// outage, it starts from the snapshot file.
package watch
