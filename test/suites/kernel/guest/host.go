package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
)

// host is a client of the test on the host.
type host struct{ url string }

func newHost(port string) *host {
	return &host{url: "http://" + control.Address + ":" + port}
}

func (h *host) post(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("host: %s: %s", path, response.Status)
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(out)
}

func (h *host) report(s control.Step) {
	if err := h.post(context.Background(), control.PathStep, s, nil); err != nil {
		fmt.Println("guest: report:", err)
	}
}

// target creates and exports volumes.
type target interface {
	// make creates an empty volume, exports it to a host, and returns its context map.
	make(ctx context.Context, volume string, size int64, h connect.Host) (map[string]string, error)
	resize(ctx context.Context, volume string, size int64) error
	remove(ctx context.Context, volume string) error
}

// hostTarget is a target on the host.
type hostTarget struct {
	host  *host
	iscsi bool // it exports volumes over iSCSI
}

func (t hostTarget) call(ctx context.Context, c control.TargetCall) (map[string]string, error) {
	var reply control.TargetReply
	if err := t.host.post(ctx, control.PathTarget, c, &reply); err != nil {
		return nil, err
	}
	if reply.Error != "" {
		return nil, errors.New(reply.Error)
	}
	return reply.Context, nil
}

func (t hostTarget) make(ctx context.Context, volume string, size int64, h connect.Host) (map[string]string, error) {
	return t.call(ctx, control.TargetCall{Do: control.Make, Volume: volume, Bytes: size, HostNQN: h.NQN, HostIQN: h.IQN, Node: nodeID})
}

func (t hostTarget) resize(ctx context.Context, volume string, size int64) error {
	_, err := t.call(ctx, control.TargetCall{Do: control.Resize, Volume: volume, Bytes: size})
	return err
}

func (t hostTarget) remove(ctx context.Context, volume string) error {
	_, err := t.call(ctx, control.TargetCall{Do: control.Remove, Volume: volume})
	return err
}

// copies is implemented by targets that can take snapshots.
type copies interface {
	snapshot(ctx context.Context, name, volume string) error
	removeSnapshot(ctx context.Context, name string) error
	// restore creates a volume from a snapshot; clone creates one from a volume.
	restore(ctx context.Context, volume, snapshot string, size int64) (map[string]string, error)
	clone(ctx context.Context, volume, from string, size int64) (map[string]string, error)
}

func (t hostTarget) snapshot(ctx context.Context, name, volume string) error {
	_, err := t.call(ctx, control.TargetCall{Do: control.Snapshot, Snapshot: name, Volume: volume})
	return err
}

func (t hostTarget) removeSnapshot(ctx context.Context, name string) error {
	_, err := t.call(ctx, control.TargetCall{Do: control.RemoveSnapshot, Snapshot: name})
	return err
}

func (t hostTarget) restore(ctx context.Context, volume, snapshot string, size int64) (map[string]string, error) {
	return t.call(ctx, control.TargetCall{Do: control.Make, Volume: volume, Snapshot: snapshot, Bytes: size, Node: nodeID})
}

func (t hostTarget) clone(ctx context.Context, volume, from string, size int64) (map[string]string, error) {
	return t.call(ctx, control.TargetCall{Do: control.Make, Volume: volume, From: from, Bytes: size, Node: nodeID})
}
