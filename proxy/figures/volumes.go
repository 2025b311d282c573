package figures

import (
	"encoding/json"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// readStores parses the result of bdev_lvol_get_lvstores.
func (r *Reader) readStores(raw json.RawMessage) error {
	var stores []Store
	err := read(raw, func(t *text, at int) int {
		return t.items(at, func(at int) int {
			var s Store
			end := t.members(at, func(name string, at int) int {
				switch name {
				case "uuid":
					return t.name(at, &s.UUID)
				case "name":
					return t.name(at, &s.Name)
				case "base_bdev":
					return t.name(at, &s.BaseBdev)
				case "total_data_clusters":
					return t.number(at, &s.Clusters)
				case "free_clusters":
					return t.number(at, &s.Free)
				case "cluster_size":
					return t.number(at, &s.ClusterSize)
				}
				return t.Skip(at)
			})
			stores = append(stores, s)
			return end
		})
	})
	if err == nil {
		r.stores = stores
	}
	return err
}

// readVolumes parses the result of bdev_lvol_get_lvols.
func (r *Reader) readVolumes(raw json.RawMessage) error {
	volumes := make([]Volume, 0, len(r.volumes)+16)
	storeOf := map[string]*Store{}
	for i := range r.stores {
		storeOf[r.stores[i].UUID] = &r.stores[i]
	}
	err := read(raw, func(t *text, at int) int {
		return t.items(at, func(at int) int {
			var v Volume
			var store string
			clusters, known := uint64(0), false
			end := t.members(at, func(name string, at int) int {
				switch name {
				case "uuid":
					return t.name(at, &v.UUID)
				case "name":
					return t.name(at, &v.Name)
				case "is_thin_provisioned":
					return t.flag(at, &v.Thin)
				case "is_snapshot":
					return t.flag(at, &v.Snapshot)
				case "is_clone":
					return t.flag(at, &v.Clone)
				case "is_degraded":
					return t.flag(at, &v.Degraded)
				case "num_allocated_clusters":
					known = true
					return t.number(at, &clusters)
				case "lvs":
					return t.members(at, func(name string, at int) int {
						switch name {
						case "uuid":
							return t.name(at, &store)
						case "name":
							return t.name(at, &v.Store)
						}
						return t.Skip(at)
					})
				}
				return t.Skip(at)
			})
			v.Name, v.UUID = strings.Clone(v.Name), strings.Clone(v.UUID) // copies do not keep the whole list in memory
			v.Store = strings.Clone(v.Store)
			if s := storeOf[store]; s != nil {
				v.Store = s.Name
				v.Allocated, v.AllocatedKnown = clusters*s.ClusterSize, known
			}
			volumes = append(volumes, v)
			return end
		})
	})
	if err != nil {
		return err
	}
	before, index := r.index, make(map[string]int, len(volumes))
	for i := range volumes {
		v := &volumes[i]
		if at, known := before[v.UUID]; known {
			v.IO, v.HasIO = r.volumes[at].IO, r.volumes[at].HasIO
		}
		index[v.UUID] = i
	}
	r.volumes, r.index, r.others, r.listed = volumes, index, nil, true
	r.applySizes()
	return nil
}

// A size contains what the list of bdevs reports about a volume's size.
type size struct {
	bytes, clusters uint64
	counted         bool // whether clusters is known
}

// readSizes parses the sizes of volumes in the result of bdev_get_bdevs.
func (r *Reader) readSizes(raw json.RawMessage) error {
	sizes := make(map[string]size, len(r.volumes))
	err := read(raw, func(t *text, at int) int {
		return t.items(at, func(at int) int {
			var s size
			var name string
			var blocks, block uint64
			lvol := false
			end := t.members(at, func(member string, at int) int {
				switch member {
				case "name":
					return t.name(at, &name)
				case "block_size":
					return t.number(at, &block)
				case "num_blocks":
					return t.number(at, &blocks)
				case "driver_specific":
					return t.members(at, func(driver string, at int) int {
						if driver != "lvol" {
							return t.Skip(at)
						}
						lvol = true
						return t.members(at, func(member string, at int) int {
							if member != "num_allocated_clusters" {
								return t.Skip(at)
							}
							s.counted = true
							return t.number(at, &s.clusters)
						})
					})
				}
				return t.Skip(at)
			})
			if lvol {
				s.bytes = blocks * block
				sizes[strings.Clone(name)] = s
			}
			return end
		})
	})
	if err != nil {
		return err
	}
	for i := range r.volumes {
		if _, listed := sizes[r.volumes[i].UUID]; !listed {
			// no bdev, because the volume's external snapshot is missing
			sizes[r.volumes[i].UUID] = size{}
		}
	}
	r.sizes = sizes
	r.applySizes()
	return nil
}

// applySizes sets the sizes of the volumes, as far as they are known.
func (r *Reader) applySizes() {
	clusterSize := map[string]uint64{}
	for _, s := range r.stores {
		clusterSize[s.Name] = s.ClusterSize
	}
	for i := range r.volumes {
		v := &r.volumes[i]
		s, known := r.sizes[v.UUID]
		if !known {
			continue
		}
		v.Size = s.bytes
		if s.counted && !r.target.Release.Has(rpcschema.ListsClusters) {
			v.Allocated, v.AllocatedKnown = s.clusters*clusterSize[v.Store], true
		}
	}
}

// unsized reports whether there are volumes that did not exist when sizes were last read.
func (r *Reader) unsized() bool {
	for i := range r.volumes {
		if _, known := r.sizes[r.volumes[i].UUID]; !known {
			return true
		}
	}
	return false
}

// summed returns the lvstores, including totals of their volumes.
func (r *Reader) summed() []Store {
	stores := append([]Store{}, r.stores...)
	byName := make(map[string]*Store, len(stores))
	for i := range stores {
		byName[stores[i].Name] = &stores[i]
	}
	for i := range r.volumes {
		v := &r.volumes[i]
		s := byName[v.Store]
		switch {
		case s == nil:
		case v.Snapshot:
			s.Snapshots++
			s.Committed += v.Allocated
		default:
			s.Volumes++
			s.Committed += v.Size
			if v.Size == 0 {
				s.Unsized++
			}
		}
	}
	return stores
}
