package kubectl

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spdkgate/spdkgate/driver/inventory"
)

// PrintVolumes prints volumes. With live, tables include columns with information from the targets.
func PrintVolumes(w io.Writer, format Format, live bool, volumes []Volume) error {
	columns := []column[Volume]{
		{heading: "NAMESPACE", cell: func(v Volume) string { return v.Namespace }},
		{heading: "CLAIM", cell: func(v Volume) string { return v.Claim }},
		{heading: "VOLUME", cell: func(v Volume) string { return v.Name }},
		{heading: "TARGET", cell: func(v Volume) string { return v.Target }},
		{heading: "LVSTORE", cell: func(v Volume) string { return v.Store }},
		{heading: "SIZE", cell: func(v Volume) string { return v.Size }},
		{heading: "STATUS", cell: func(v Volume) string { return v.Status }},
		{heading: "NODES", cell: nodes},
	}
	if live {
		columns = append(columns, []column[Volume]{
			{heading: "ALLOCATED", cell: known(allocated)},
			{heading: "EXPORTED-TO", cell: known(exportedTo)},
			{heading: "CONNECTED", cell: known(func(l *Live) string { return counted(l.Connected) })},
			{heading: "PATHS", cell: known(func(l *Live) string { return paths(l.Export) })},
			{heading: "CONDITION", cell: known(func(l *Live) string { return strings.Join(l.Conditions, "; ") })},
		}...)
	}
	return printRows(w, format, append(columns, []column[Volume]{
		{heading: "CLASS", wide: true, cell: func(v Volume) string { return v.Class }},
		{heading: "MODE", wide: true, cell: func(v Volume) string { return v.Mode }},
		{heading: "ACCESS", wide: true, cell: func(v Volume) string { return strings.Join(v.AccessModes, ",") }},
		{heading: "TRANSPORT", wide: true, cell: func(v Volume) string { return v.Transport }},
		{heading: "ID", wide: true, cell: func(v Volume) string { return v.ID }},
	}...), volumes)
}

func nodes(v Volume) string {
	var names []string
	for _, a := range v.Nodes {
		if a.State == "attached" {
			names = append(names, a.Node)
		} else {
			names = append(names, a.Node+"("+a.State+")")
		}
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// known returns the cell if there is information from the volume's target, and ? otherwise.
func known(cell func(*Live) string) func(Volume) string {
	return func(v Volume) string {
		if v.Live == nil {
			return "?"
		}
		return cell(v.Live)
	}
}

func allocated(l *Live) string {
	if l.AllocatedBytes == nil {
		return ""
	}
	return size(*l.AllocatedBytes)
}

func exportedTo(l *Live) string {
	if l.Export != nil && l.Export.Open {
		return "every host"
	}
	return strings.Join(l.ExportedTo, ",")
}

// paths counts the addresses that the target is listening on, and lists the remaining addresses.
func paths(e *inventory.Export) string {
	if e == nil {
		return ""
	}
	listening := 0
	var others []string
	for _, p := range e.Paths {
		if p.Listening {
			listening++
		} else {
			others = append(others, p.Address)
		}
	}
	text := fmt.Sprintf("%d/%d", listening, len(e.Paths))
	if len(others) > 0 {
		text += " (not " + strings.Join(others, ",") + ")"
	}
	return text
}

// PrintSnapshots prints snapshots.
func PrintSnapshots(w io.Writer, format Format, now time.Time, snapshots []Snapshot) error {
	return printRows(w, format, []column[Snapshot]{
		{heading: "NAMESPACE", cell: func(s Snapshot) string { return s.Namespace }},
		{heading: "SNAPSHOT", cell: func(s Snapshot) string { return s.Name }},
		{heading: "SOURCE", cell: func(s Snapshot) string { return s.Source }},
		{heading: "TARGET", cell: func(s Snapshot) string { return s.Target }},
		{heading: "SIZE", cell: func(s Snapshot) string { return size(s.SizeBytes) }},
		{heading: "STATUS", cell: func(s Snapshot) string { return s.Status }},
		{heading: "AGE", cell: func(s Snapshot) string { return age(now, s.Created) }},
		{heading: "CLASS", wide: true, cell: func(s Snapshot) string { return s.Class }},
		{heading: "POLICY", wide: true, cell: func(s Snapshot) string { return s.Policy }},
		{heading: "CONTENT", wide: true, cell: func(s Snapshot) string { return s.Content }},
		{heading: "ID", wide: true, cell: func(s Snapshot) string { return s.ID }},
		{heading: "GROUP", wide: true, cell: func(s Snapshot) string { return s.Group }},
		{heading: "MESSAGE", wide: true, cell: func(s Snapshot) string { return cmp.Or(s.Undeletable, s.Message) }},
	}, snapshots)
}

// PrintNodes prints nodes. With live, tables include columns with information from the targets and
// the node plugins.
func PrintNodes(w io.Writer, format Format, live bool, now time.Time, all []Node) error {
	columns := []column[Node]{
		{heading: "NODE", cell: func(n Node) string { return n.Name }},
		{heading: "STATUS", cell: Node.conditions},
		{heading: "PUBLISHED", cell: Node.published},
	}
	if live {
		columns = append(columns, []column[Node]{
			{heading: "FENCED", cell: func(n Node) string { return n.fenced(now) }},
			{heading: "STAGED", cell: Node.staged},
			{heading: "LOST-PATHS", cell: Node.lost},
			{heading: "PROBLEMS", cell: Node.problems},
			{heading: "TRANSPORTS", cell: Node.transports},
			{heading: "VERSION", cell: Node.version},
			{heading: "CHECKED", wide: true, cell: func(n Node) string { return n.checked(now) }},
		}...)
	}
	return printRows(w, format, append(columns, []column[Node]{
		{heading: "LIMIT", wide: true, cell: Node.limit},
		{heading: "POD", wide: true, cell: func(n Node) string { return n.Pod }},
		{heading: "IMAGE", wide: true, cell: func(n Node) string { return n.Image }},
		{heading: "UNKNOWN", wide: true, cell: func(n Node) string { return strings.Join(n.Unknown, "; ") }},
	}...), all)
}

// PrintCapacities prints capacities.
func PrintCapacities(w io.Writer, format Format, all []Capacity) error {
	return printRows(w, format, []column[Capacity]{
		{heading: "TOPOLOGY", cell: func(c Capacity) string { return c.Topology }},
		{heading: "CLASS", cell: func(c Capacity) string { return c.Class }},
		{heading: "CAPACITY", cell: func(c Capacity) string { return c.Capacity }},
		{heading: "LARGEST", cell: func(c Capacity) string { return c.Largest }},
	}, all)
}

// PrintStores prints lvstores.
func PrintStores(w io.Writer, format Format, stores []Store) error {
	return printRows(w, format, []column[Store]{
		{heading: "TARGET", cell: func(s Store) string { return s.Target }},
		{heading: "LVSTORE", cell: func(s Store) string { return s.Name }},
		{heading: "SIZE", cell: func(s Store) string { return size(s.TotalBytes) }},
		{heading: "FREE", cell: func(s Store) string { return size(s.FreeBytes) }},
		{heading: "PROVISIONED", cell: func(s Store) string { return size(s.PromisedBytes) }},
		{heading: "LARGEST", cell: func(s Store) string { return size(s.LargestBytes) }},
		{heading: "VOLUMES", cell: func(s Store) string { return fmt.Sprint(s.Volumes) }},
		{heading: "CHAIN", wide: true, cell: func(s Store) string { return fmt.Sprint(s.LongestChain) }},
		{heading: "TOPOLOGY", wide: true, cell: func(s Store) string { return s.Topology }},
	}, stores)
}
