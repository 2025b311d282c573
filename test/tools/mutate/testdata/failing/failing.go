// Package failing has a test that fails without any change.
package failing

func positive(i int) bool { return i > 0 }
