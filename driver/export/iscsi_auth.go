package export

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/driver/hostauth"
	"github.com/spdkgate/spdkgate/driver/readback"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A target node that requires authentication has its own authentication group, which contains CHAP
// user names and passwords. The group's tag is derived from these credentials and from the volume.
// SPDK reports passwords only in plain text, so this package compares the tags of groups instead.
// After the passwords change, the target node is assigned to a new group, so that either the old or
// the new passwords are valid at any time. Each group contains a second user, which identifies the
// volume. Its random password is stored nowhere else.

const (
	// leastAuthTag is the lowest tag of authentication groups that this package creates.
	leastAuthTag = 1 << 30
	// authMark is the prefix of the name of the user that identifies the volume.
	authMark = "spdkgate volume "
)

// authTag returns the tag for a volume's keys.
func authTag(id string, k *hostauth.Keys) int32 {
	h := hmac.New(sha256.New, []byte(k.Host.Reveal()))
	fmt.Fprintf(h, "%q %q %q %q", id, k.HostUser, k.TargetUser, k.Target.Reveal())
	return leastAuthTag + int32(binary.LittleEndian.Uint32(h.Sum(nil))%(1<<30))
}

func (i iscsi) checkAuthenticates(h Host) error {
	if h.Keys == nil {
		return nil
	}
	return i.CheckAuthenticates(h.Keys.Method)
}

// ensureAuthGroup returns the tag of a group with the host's keys, or 0 if the host has no keys.
func (i iscsi) ensureAuthGroup(ctx context.Context, id string, k *hostauth.Keys) (int32, error) {
	if k == nil {
		return 0, nil
	}
	secret := spdkrpc.ISCSIAuthSecret{User: k.HostUser, Secret: k.Host.Reveal()}
	if k.Both() {
		secret.Muser, secret.Msecret = &k.TargetUser, new(k.Target.Reveal())
	}
	mark := spdkrpc.ISCSIAuthSecret{User: authMark + id, Secret: rand.Text()}
	for tag := authTag(id, k); ; tag++ {
		failed := i.rpc.ISCSICreateAuthGroup(ctx, spdkrpc.ISCSICreateAuthGroupParams{Tag: tag, Secrets: []spdkrpc.ISCSIAuthSecret{secret, mark}})
		if failed == nil {
			return tag, nil
		}
		if !readback.Clarifies(failed) {
			return 0, fmt.Errorf("create authentication group %d: %w", tag, failed)
		}
		groups, err := i.authGroups(ctx)
		if err != nil {
			return 0, err
		}
		switch owner, there := groups[tag]; {
		case !there:
			return 0, fmt.Errorf("create authentication group %d: %w", tag, failed)
		case owner == id:
			return tag, nil
		}
		// Another volume already has this tag.
	}
}

// authGroups maps the tag of each authentication group to the group's volume, or to an empty string
// if the driver did not create the group.
func (i iscsi) authGroups(ctx context.Context) (map[int32]string, error) {
	all, err := i.rpc.ISCSIGetAuthGroups(ctx)
	if err != nil {
		return nil, fmt.Errorf("list authentication groups: %w", err)
	}
	volumes := map[int32]string{}
	for _, g := range all {
		volumes[g.Tag] = ""
		for _, s := range g.Secrets {
			if id, ok := strings.CutPrefix(s.User, authMark); ok && g.Tag >= leastAuthTag {
				volumes[g.Tag] = id
			}
		}
	}
	return volumes, nil
}

func usesAuthGroup(nodes []spdkrpc.ISCSITargetNode, tag int32) bool {
	return slices.ContainsFunc(nodes, func(n spdkrpc.ISCSITargetNode) bool { return n.CHAPGroup == tag })
}

// requires reports whether a target node requires authentication with the host's keys.
func (h Host) requires(node *spdkrpc.ISCSITargetNode, tag int32) bool {
	return h.Keys == nil || node.RequireCHAP && !node.DisableCHAP && node.MutualCHAP == h.Keys.Both() && node.CHAPGroup == tag
}

// authStep returns the step that makes a volume's target node require authentication with the keys
// of a group.
func (i iscsi) authStep(ctx context.Context, id string, h Host, tag int32) readback.Step {
	return readback.NewStep("require authentication", func() error {
		return i.rpc.ISCSITargetNodeSetAuth(ctx, spdkrpc.ISCSITargetNodeSetAuthParams{Name: IQN(id), RequireCHAP: new(true), MutualCHAP: new(h.Keys.Both()), CHAPGroup: &tag})
	}, func() (bool, error) {
		now, err := i.read(ctx, id)
		return err == nil && now.node != nil && h.requires(now.node, tag), err
	})
}

// removeAuthGroups removes all authentication groups of a volume except the group with the tag
// except. If except is 0, it removes all of them.
func (i iscsi) removeAuthGroups(ctx context.Context, id string, except int32) error {
	groups, err := i.authGroups(ctx)
	if err != nil {
		return err
	}
	for tag, volume := range groups {
		if volume != id || tag == except {
			continue
		}
		if err := i.rpc.ISCSIDeleteAuthGroup(ctx, spdkrpc.ISCSIDeleteAuthGroupParams{Tag: tag}); err != nil && !readback.Refused(err) { // SPDK refuses if the group no longer exists
			return fmt.Errorf("delete authentication group %d: %w", tag, err)
		}
	}
	return nil
}

// mayHaveAuthGroups reports whether a volume has authentication groups, or may have some that an
// interrupted call left behind. Either argument may be nil.
func mayHaveAuthGroups(node *spdkrpc.ISCSITargetNode, h *Host) bool {
	return node != nil && node.CHAPGroup >= leastAuthTag || h != nil && h.Keys != nil && h.Keys.Method == hostauth.CHAP
}

// unusedAuthGroups returns the tags of the driver's groups that no target node uses. It returns no
// tags for clients that are not allowed to list authentication groups. For the role csi-controller,
// the proxy removes passwords from the list.
func (i iscsi) unusedAuthGroups(ctx context.Context) (tags []int32, err error) {
	groups, err := i.authGroups(ctx)
	if readback.Refused(err) || errors.Is(err, spdkrpc.MethodNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	nodes, err := i.rpc.ISCSIGetTargetNodes(ctx) // read after the groups, because a group is created before its target node
	if err != nil {
		return nil, err
	}
	missing, err := i.saved(ctx)
	if err != nil {
		return nil, err
	}
	for tag, volume := range groups {
		if volume != "" && !usesAuthGroup(nodes, tag) && missing.node(IQN(volume)) == nil {
			tags = append(tags, tag)
		}
	}
	return tags, nil
}
