package spdktest

import (
	"slices"
	"syscall"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// maxSecret is the maximum length of a user's name or secret.
const maxSecret = 255

func init() {
	confirm("iscsi_create_auth_group", (*engine).iscsiCreateAuthGroup)
	confirm("iscsi_delete_auth_group", (*engine).iscsiDeleteAuthGroup)
	confirm("iscsi_auth_group_add_secret", (*engine).iscsiAddSecret)
	confirm("iscsi_auth_group_remove_secret", (*engine).iscsiRemoveSecret)
	query("iscsi_get_auth_groups", func(e *engine) ([]spdkrpc.ISCSIAuthGroup, error) {
		list := []spdkrpc.ISCSIAuthGroup{}
		for _, g := range e.iscsi.auth {
			list = append(list, spdkrpc.ISCSIAuthGroup{Tag: g.Tag, Secrets: append([]spdkrpc.ISCSIAuthSecret{}, g.Secrets...)})
		}
		return list, nil
	})
}

func (e *engine) authGroup(tag int32) (*spdkrpc.ISCSIAuthGroup, error) {
	i := slices.IndexFunc(e.iscsi.auth, func(g *spdkrpc.ISCSIAuthGroup) bool { return g.Tag == tag })
	if i < 0 {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Could not find auth group (%d)", tag)
	}
	return e.iscsi.auth[i], nil
}

func (e *engine) iscsiCreateAuthGroup(p spdkrpc.ISCSICreateAuthGroupParams) error {
	if _, err := e.authGroup(p.Tag); err == nil {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Could not add auth group (%d), %s", p.Tag, strerror(syscall.EEXIST))
	}
	g := &spdkrpc.ISCSIAuthGroup{Tag: p.Tag}
	for _, s := range p.Secrets {
		if err := addSecret(g, s); err != nil {
			return err
		}
	}
	e.iscsi.auth = append(e.iscsi.auth, g)
	return nil
}

func addSecret(g *spdkrpc.ISCSIAuthGroup, s spdkrpc.ISCSIAuthSecret) error {
	problem := syscall.Errno(0)
	switch {
	case len(s.User) > maxSecret, len(s.Secret) > maxSecret, len(value(s.Muser)) > maxSecret, len(value(s.Msecret)) > maxSecret,
		s.Muser != nil && s.Msecret == nil:
		problem = syscall.EINVAL
	case slices.ContainsFunc(g.Secrets, func(o spdkrpc.ISCSIAuthSecret) bool { return o.User == s.User }):
		problem = syscall.EEXIST
	}
	if problem != 0 {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Could not add secret to auth group (%d), %s", g.Tag, strerror(problem))
	}
	if s.Muser == nil {
		s.Msecret = nil
	}
	g.Secrets = append(g.Secrets, s)
	return nil
}

func (e *engine) iscsiDeleteAuthGroup(p spdkrpc.ISCSIDeleteAuthGroupParams) error {
	g, err := e.authGroup(p.Tag)
	if err != nil {
		return err
	}
	e.iscsi.auth = slices.DeleteFunc(e.iscsi.auth, func(o *spdkrpc.ISCSIAuthGroup) bool { return o == g })
	return nil
}

func (e *engine) iscsiAddSecret(p spdkrpc.ISCSIAuthGroupAddSecretParams) error {
	g, err := e.authGroup(p.Tag)
	if err != nil {
		return err
	}
	return addSecret(g, spdkrpc.ISCSIAuthSecret{User: p.User, Secret: p.Secret, Muser: p.Muser, Msecret: p.Msecret})
}

func (e *engine) iscsiRemoveSecret(p spdkrpc.ISCSIAuthGroupRemoveSecretParams) error {
	g, err := e.authGroup(p.Tag)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(g.Secrets, func(s spdkrpc.ISCSIAuthSecret) bool { return s.User == p.User })
	if i < 0 {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Could not delete secret from CHAP group (%d), %s", p.Tag, strerror(syscall.ENODEV))
	}
	g.Secrets = slices.Delete(g.Secrets, i, i+1)
	return nil
}
