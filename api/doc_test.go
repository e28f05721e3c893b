// Package api_test checks the API as its users meet it: the generated CRDs,
// what an API server makes of objects under them, and that the generated files
// are up to date.
package api_test
