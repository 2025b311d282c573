// The bundler of the console's front end, in a module of its own: it has no place in the graph of what we ship. `make console`
// runs it; whoever only builds the programs uses the committed ../dist.
module github.com/spdkgate/spdkgate/proxy/console/web

go 1.26.0

require github.com/evanw/esbuild v0.28.2

require golang.org/x/sys v0.0.0-20220715151400-c0bba94af5f8 // indirect
