// Package failing contains a test that fails even without any changes.
package failing

func positive(i int) bool { return i > 0 }
