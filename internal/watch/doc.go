// Package watch keeps a model.Snapshot true: it follows the objects that the model
// is made from, in an API server or in a folder of files, and swaps in a new
// snapshot within a moment of every change.
//
// A Store never goes back to knowing less. When the API server is gone its last
// snapshot stays; when the process restarts meanwhile, the snapshot file stands in.
package watch
