package kubectl

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/driver/hostname"
	"github.com/spdkgate/spdkgate/driver/inventory"
)

// NodeOptions select what [Client.NodeStates] reads.
type NodeOptions struct {
	// Names selects nodes; empty selects all.
	Names []string
	// Live also queries the targets, through the controller's pod, and the node plugins, in their
	// pods.
	Live bool
	// Selector is the label selector of the node plugin's pods, and Container is their container.
	Selector, Container string
	// Timeout limits the query to each node plugin.
	Timeout time.Duration
}

// nodesInFlight is the maximum number of node plugins that are queried concurrently. Each query
// runs a kubectl process.
const nodesInFlight = 8

// NodeStates returns the nodes that run the driver, and fenced nodes that are not in the cluster,
// ordered by name. It reads each source independently. Unreadable values are nil in the nodes, and
// the error contains the reasons. The error may be returned together with nodes.
func (c Client) NodeStates(ctx context.Context, driver string, o NodeOptions) ([]Node, error) {
	r := c.readNodes(ctx, driver, o)
	failed := r.errors()
	if r.registeredErr != nil && r.podsErr != nil {
		return nil, failed
	}
	nodes, err := selected(r.nodes(driver, o.Container), o.Names)
	if o.Live && r.podsErr == nil {
		return nodes, errors.Join(failed, err, Unread(r.marks), c.askPlugins(ctx, nodes, o))
	}
	return nodes, errors.Join(failed, err, Unread(r.marks))
}

// nodeReading contains the reports of all sources about the nodes.
type nodeReading struct {
	registered  []csiNode
	pods        []pod
	objects     []node
	attachments map[string][]volumeAttachment
	marks       inventory.Inventory

	registeredErr, podsErr, objectsErr, attachmentsErr, marksErr error
}

func (r nodeReading) errors() error {
	return errors.Join(r.registeredErr, r.podsErr, r.objectsErr, r.attachmentsErr, r.marksErr)
}

func (c Client) readNodes(ctx context.Context, driver string, o NodeOptions) (r nodeReading) {
	var reads sync.WaitGroup
	reads.Go(func() { r.registered, r.registeredErr = list[csiNode](ctx, c, csiNodesPath, nil) })
	reads.Go(func() {
		r.pods, r.podsErr = list[pod](ctx, c, podsPath(c.Namespace), url.Values{"labelSelector": {o.Selector}})
	})
	reads.Go(func() { r.objects, r.objectsErr = list[node](ctx, c, nodesPath, nil) })
	reads.Go(func() { r.attachments, r.attachmentsErr = c.attachments(ctx, driver) })
	if o.Live {
		reads.Go(func() { r.marks, r.marksErr = c.inventory(ctx, "--fenced") })
	}
	reads.Wait()
	return r
}

// nodes combines the reports of the sources into nodes, ordered by name.
func (r nodeReading) nodes(driver, container string) []Node {
	byName := map[string]*Node{}
	of := func(name string) *Node {
		if byName[name] == nil {
			byName[name] = &Node{Name: name, id: name}
		}
		return byName[name]
	}
	for _, o := range r.registered {
		for _, d := range o.Spec.Drivers {
			if d.Name == driver {
				n := of(o.Metadata.Name)
				n.id, n.Registered, n.Limit = cmp.Or(d.NodeID, n.id), new(true), d.Allocatable.Count
			}
		}
	}
	for _, p := range r.pods {
		if p.Spec.NodeName != "" {
			of(p.Spec.NodeName).setPlugin(p, container)
		}
	}
	for _, all := range r.attachments {
		for _, a := range all {
			of(a.Spec.NodeName).attachments = append(of(a.Spec.NodeName).attachments, attachmentOf(a).State)
		}
	}
	addFenced(byName, r.marks)
	objects := map[string]node{}
	for _, o := range r.objects {
		objects[o.Metadata.Name] = o
	}
	var nodes []Node
	for _, n := range byName {
		if r.registeredErr == nil && n.Registered == nil {
			n.Registered = new(false)
		}
		if r.podsErr == nil && n.PluginReady == nil {
			n.PluginReady = new(false)
		}
		if r.attachmentsErr == nil {
			n.countAttachments()
		}
		if r.objectsErr == nil {
			o, there := objects[n.Name]
			n.setObject(o, there)
		}
		nodes = append(nodes, *n)
	}
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes
}

// addFenced adds the fence marks of targets to nodes. For a mark that matches no known node, it
// adds a node.
func addFenced(byName map[string]*Node, marks inventory.Inventory) {
	if len(marks.Targets) == 0 {
		return // no target was queried
	}
	byHost := map[string]*Node{}
	for _, n := range byName {
		byHost[hostname.Of(n.id).UUID] = n
	}
	var unread []string
	for _, t := range marks.Targets {
		if t.Error != "" {
			unread = append(unread, t.Name)
		}
		for _, f := range t.Fenced {
			if byHost[f.Host] == nil {
				name := "host " + f.Host
				if hostname.Of(f.Label).UUID == f.Host {
					name = f.Label
				}
				byHost[f.Host] = &Node{Name: name, id: name}
				byName[name] = byHost[f.Host]
			}
			n := byHost[f.Host]
			n.Fenced = append(n.Fenced, FencedOn{Target: t.Name, Since: f.Since})
		}
	}
	for _, n := range byName {
		n.targets, n.Unread = len(marks.Targets), unread
		if n.Fenced == nil {
			n.Fenced = []FencedOn{}
		}
	}
}

// selected returns the nodes with these names, or all nodes if no names are given. selected fails
// if a name is unknown.
func selected(nodes []Node, names []string) ([]Node, error) {
	var unknown []error
	for _, name := range names {
		if !slices.ContainsFunc(nodes, func(n Node) bool { return n.Name == name }) {
			unknown = append(unknown, fmt.Errorf("node %s neither runs the driver nor is fenced: check its name", name))
		}
	}
	return slices.DeleteFunc(nodes, func(n Node) bool { return len(names) > 0 && !slices.Contains(names, n.Name) }), errors.Join(unknown...)
}

// askPlugins queries the node plugins, and adds their reports to nodes.
func (c Client) askPlugins(ctx context.Context, nodes []Node, o NodeOptions) error {
	errs := make([]error, len(nodes))
	slots := make(chan struct{}, nodesInFlight)
	var all sync.WaitGroup
	for i := range nodes {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			n := &nodes[i]
			err := c.askPlugin(ctx, n, o)
			if err != nil {
				n.Unknown = append(n.Unknown, err.Error())
				errs[i] = fmt.Errorf("node %s: %w", n.Name, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// askPlugin queries one node plugin. It skips a node that is not ready, because that node's kubelet
// would not respond.
func (c Client) askPlugin(ctx context.Context, n *Node, o NodeOptions) error {
	switch {
	case n.Pod == "":
		return errors.New("cannot read the paths to its volumes: no node plugin pod was found on the node")
	case n.Ready != nil && !*n.Ready:
		return errors.New("cannot read the paths to its volumes: the node is not ready, so its node plugin was not queried")
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	var out, notes bounded
	cmd := c.commandIn(ctx, "pod/"+n.Pod, o.Container, false, "node-status")
	cmd.Stdout, cmd.Stderr = &out, &notes
	failed := cmd.Run()
	var status inventory.NodeStatus
	if err := json.Unmarshal(out.text.Bytes(), &status); err == nil && status.Version != "" {
		n.Status = &status
		if status.Problem != "" {
			return fmt.Errorf("cannot read the paths to its volumes: %s", status.Problem)
		}
		return nil
	}
	switch {
	case out.exceeded:
		failed = fmt.Errorf("the command printed more than %d bytes", mostStatus)
	case ctx.Err() != nil:
		failed = fmt.Errorf("no response within %s", o.Timeout)
	case failed == nil:
		failed = errors.New("the command printed no status")
	}
	return fmt.Errorf("cannot read the paths to its volumes: run spdk-csi node-status in pod %s of namespace %s: %w", n.Pod, c.Namespace, reason(failed, &notes.text))
}

// mostStatus limits the output of a node plugin, because its node may be hostile. A thousand
// volumes take less than 1 MiB.
const mostStatus = 16 << 20

// bounded is a buffer that accepts at most mostStatus bytes.
type bounded struct {
	text     bytes.Buffer
	exceeded bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.text.Len()+len(p) > mostStatus {
		b.exceeded = true
		return 0, io.ErrShortWrite
	}
	return b.text.Write(p)
}
