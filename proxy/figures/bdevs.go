package figures

import (
	"encoding/json"
	"strings"
)

// readIO parses the result of bdev_get_iostat. unknown reports whether the result contains new
// bdevs, which may be volumes.
func (r *Reader) readIO(raw json.RawMessage) (unknown bool, err error) {
	var bdevs []Bdev
	rate, ticks := uint64(0), uint64(0)
	for i := range r.volumes {
		r.volumes[i].HasIO = false
	}
	err = read(raw, func(t *text, at int) int {
		return t.members(at, func(name string, at int) int {
			switch name {
			case "tick_rate":
				return t.number(at, &rate)
			case "ticks":
				return t.number(at, &ticks)
			case "bdevs":
				return t.items(at, func(at int) int {
					name, io, end := t.io(at, rate)
					if i, known := r.index[name]; known {
						r.volumes[i].IO, r.volumes[i].HasIO = io, true
						return end
					}
					if _, known := r.others[name]; !known {
						unknown = true
					}
					bdevs = append(bdevs, Bdev{strings.Clone(name), io})
					return end
				})
			}
			return t.Skip(at)
		})
	})
	if err == nil {
		r.bdevs, r.clock = bdevs, seconds(ticks, rate)
		if !unknown || len(r.stores) == 0 {
			r.noteOthers()
		}
	}
	return unknown, err
}

// noteOthers records the bdevs that are not volumes.
func (r *Reader) noteOthers() {
	r.others = make(map[string]struct{}, len(r.bdevs))
	for _, b := range r.bdevs {
		r.others[b.Name] = struct{}{}
	}
}

// settle assigns the I/O of new bdevs. If the list of volumes has been read again, settle moves the
// I/O of new volumes from the other bdevs to the volumes. Otherwise, it omits the new bdevs,
// because they could be volumes.
func (r *Reader) settle() {
	fresh := r.listed && r.others == nil // see readVolumes
	var bdevs []Bdev
	for _, b := range r.bdevs {
		if i, known := r.index[b.Name]; known {
			r.volumes[i].IO, r.volumes[i].HasIO = b.IO, true
			continue
		}
		if _, known := r.others[b.Name]; known || fresh {
			bdevs = append(bdevs, b)
		}
	}
	r.bdevs = bdevs
	if fresh {
		r.noteOthers()
	}
}

// io parses a bdev's statistics. rate is the tick rate, which precedes the bdevs in the text.
func (t *text) io(at int, rate uint64) (name string, io IO, end int) {
	var read, written, unmapped uint64
	end = t.members(at, func(member string, at int) int {
		switch member {
		case "name":
			return t.name(at, &name)
		case "bytes_read":
			return t.number(at, &io.Read.Bytes)
		case "num_read_ops":
			return t.number(at, &io.Read.Count)
		case "bytes_written":
			return t.number(at, &io.Write.Bytes)
		case "num_write_ops":
			return t.number(at, &io.Write.Count)
		case "bytes_unmapped":
			return t.number(at, &io.Unmap.Bytes)
		case "num_unmap_ops":
			return t.number(at, &io.Unmap.Count)
		case "read_latency_ticks":
			return t.number(at, &read)
		case "write_latency_ticks":
			return t.number(at, &written)
		case "unmap_latency_ticks":
			return t.number(at, &unmapped)
		}
		return t.Skip(at)
	})
	io.Read.Latency, io.Write.Latency, io.Unmap.Latency = seconds(read, rate), seconds(written, rate), seconds(unmapped, rate)
	return name, io, end
}

// seconds converts ticks to seconds.
func seconds(ticks, rate uint64) float64 {
	if rate == 0 {
		return 0
	}
	return float64(ticks) / float64(rate)
}
