// Package console serves the files of the console, the web page for administrators, which are
// compiled into the program, and sets the headers that protect it in a browser.
//
// The package may not know who asks, or what the page does: its calls are those of every client.
package console
