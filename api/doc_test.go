// Package api_test checks the API as clients use it: the generated CRDs, what an API server accepts, rejects
// and defaults under them, and that the generated files are up to date.
package api_test
