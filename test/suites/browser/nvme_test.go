package browser

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// nvmeDevices are the NVMe controllers attached through a relay: their PCI addresses by name. Each
// has one namespace, which is a null bdev of the simulated target.
type nvmeDevices struct {
	mu       sync.Mutex
	attached map[string]string
}

func (d *nvmeDevices) any() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.attached) > 0
}

// kernelDevice is the PCI address of a device that the kernel driver still has.
const kernelDevice = "0000:5f:00.0"

// nvmeRequest returns the request to send to the simulated target instead of a request about NVMe
// devices.
func (r *relayed) nvmeRequest(m message, text json.RawMessage) json.RawMessage {
	d := &r.calls.nvme
	d.mu.Lock()
	defer d.mu.Unlock()
	replace := func(method string, params object) json.RawMessage {
		text, err := json.Marshal(object{"jsonrpc": "2.0", "id": m.ID, "method": method, "params": params})
		if err != nil {
			panic(err) // the values are defined in this file
		}
		return text
	}
	switch {
	case m.Method == "bdev_nvme_attach_controller" && m.Params.TrAddr == kernelDevice:
		return replace("bdev_null_delete", object{"name": "no such bdev"}) // fails with the same code, -19
	case m.Method == "bdev_nvme_attach_controller":
		if d.attached == nil {
			d.attached = map[string]string{}
		}
		d.attached[m.Params.Name] = m.Params.TrAddr
		text = replace("bdev_null_create", object{"name": m.Params.Name + "n1", "num_blocks": 1 << 28, "block_size": 4096})
	case m.Method == "bdev_nvme_detach_controller":
		delete(d.attached, m.Params.Name)
		return replace("bdev_null_delete", object{"name": m.Params.Name + "n1"})
	case len(d.attached) == 0:
		return text
	}
	r.mu.Lock()
	r.asked[string(m.ID)] = m.Method
	r.mu.Unlock()
	return text
}

// result returns what SPDK would return for a method, to replace the simulated target's result.
func (d *nvmeDevices) result(method string, result json.RawMessage) any {
	if method == "bdev_nvme_attach_controller" {
		return []json.RawMessage{result}
	}
	var bdevs []object
	if json.Unmarshal(result, &bdevs) != nil {
		return result
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range bdevs {
		name, _ := b["name"].(string)
		controller, found := strings.CutSuffix(name, "n1")
		at, attached := d.attached[controller]
		if !found || !attached {
			continue
		}
		b["product_name"] = "NVMe disk"
		b["driver_specific"] = object{"mp_policy": "active_passive", "nvme": []object{{
			"pci_address": at, "trid": object{"trtype": "PCIe", "traddr": at}, "ns_data": object{"id": 1, "can_share": false},
			"ctrlr_data": object{"model_number": "Example NVMe 1 TB", "serial_number": "S-0001", "vendor_id": "0x8086"},
		}}}
	}
	return bdevs
}

// An NVMe device can be attached, used and removed through the page's dialogs. To remove it, the
// page detaches its controller.
func TestNVMeDeviceLifecycle(t *testing.T) {
	w := exportTestbed(t, "--spdk-version", "v26.05")
	p := newPageAt(t, w)
	p.signIn("admin")
	p.show("storage")
	p.press("Attach a disk")
	p.fill("Kind", "nvme")
	p.fill("Name of the controller", "nvme0")
	p.fill("PCI address", "5e")
	p.has("A PCI address such as 0000:5e:00.0")
	assert.True(t, eval[bool](p, submits+`.disabled`))
	p.fill("PCI address", kernelDevice)
	p.submit()
	p.has("the kernel driver still has the device. To unbind it from the kernel driver, run SPDK's scripts/setup.sh on the server, with the address in PCI_ALLOWED")
	p.has("SPDK: No such device, code -19")
	p.fill("PCI address", "0000:5e:00.0")
	p.has("its scripts/setup.sh unbinds it from the kernel")
	p.submit()
	p.has("Attached nvme0")
	p.until(`!document.querySelector("dialog[open]")`)

	p.press("Attach a disk")
	p.fill("Name of the controller", "nvme0")
	p.has("There is a controller with this name")
	p.fill("Name of the controller", "nvme1")
	for _, address := range []string{"0000:5e:00.0", "5e:00.0", "0000:5E:00.0"} {
		p.fill("PCI address", "")
		p.fill("PCI address", address)
		p.has("nvme0n1 is this one already")
		assert.True(t, eval[bool](p, submits+`.disabled`))
	}
	p.press("Cancel")

	p.show("storage?use=unused&id=nvme0n1")
	for _, text := range []string{"1 TiB in blocks of 4 KiB", "0000:5e:00.0", "Example NVMe 1 TB, S-0001", "unused"} {
		p.until(panelText + `.includes("` + text + `")`)
	}
	p.press("Create an lvstore")
	p.fill("Name of the lvstore", "fast")
	p.has("Everything on nvme0n1 (0000:5e:00.0) is lost")
	p.fill("To confirm, type nvme0n1", "nvme0n1")
	p.submit()
	p.has("Created the lvstore fast")
	p.show("storage?id=nvme0n1")
	p.until(panelText + `.includes("lvstore fast")`)
	for _, name := range []string{"a", "b"} {
		w.call(t, "bdev_lvol_create", object{"lvs_name": "fast", "lvol_name": name, "size_in_mib": 8, "thin_provision": true})
	}
	w.call(t, "nvmf_create_subsystem", object{"nqn": serverNQN, "serial_number": "b"})
	w.call(t, "nvmf_subsystem_add_ns", object{"nqn": serverNQN, "namespace": object{"bdev_name": "fast/b"}})
	p.show("explorer?method=bdev_nvme_detach_controller")
	p.fill("name", "nvme0")
	p.press("Call…")
	p.has("The lvstore fast and 2 volumes in it disappear: a, b. Their data stays on nvme0n1")
	p.has("Hosts may use b, and would lose the data that they have not written yet: withdraw the export first.")
	p.press("Cancel")
	w.call(t, "nvmf_delete_subsystem", object{"nqn": serverNQN})
	p.show("storage?id=nvme0n1")
	p.press("Delete the lvstore")
	p.fill("To confirm, type fast", "fast")
	p.submit()
	p.has("Deleted the lvstore fast")
	p.until(panelText + `.includes("unused")`)
	p.press("Remove")
	p.fill("To confirm, type nvme0n1", "nvme0n1")
	p.submit()
	p.has("Removed nvme0n1")
	p.until(`!document.querySelector(".panel")`)
	require.False(t, w.calls.nvme.any(), "bdev_nvme_detach_controller was not called")
}
