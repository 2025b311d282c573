package execute

import (
	"context"
	"encoding/json"

	"github.com/spdkgate/spdkgate/proxy/keys"
)

// AddKey serves spdkgate_key_add.
func (e *Executor) AddKey(ctx context.Context, c Command) (json.RawMessage, error) {
	name, _ := c.Params["name"].(string)
	secret, _ := c.Params["secret"].(string)
	return e.changeKeys(ctx, c, func() error { return e.restart.keys.Add(ctx, c.Ask, c.keyShare(), name, secret) })
}

// RemoveKey serves spdkgate_key_remove.
func (e *Executor) RemoveKey(ctx context.Context, c Command) (json.RawMessage, error) {
	name, _ := c.Params["name"].(string)
	return e.changeKeys(ctx, c, func() error { return e.restart.keys.Remove(ctx, c.Ask, name) })
}

// changeKeys runs f, which changes keys. Changes by the same tenant run one at a time.
func (e *Executor) changeKeys(ctx context.Context, c Command, f func() error) (json.RawMessage, error) {
	return e.change(ctx, c, func() (json.RawMessage, error) {
		release, err := e.restart.keys.Acquire(ctx, c.owner())
		if err != nil {
			return nil, err
		}
		defer release()
		return marshal(true, f())
	})
}

// HoldKeys blocks all changes to a tenant's keys until release is called.
func (e *Executor) HoldKeys(ctx context.Context, tenant string) (release func(), err error) {
	return e.restart.keys.Acquire(ctx, "tenant\x00"+tenant)
}

// owner identifies the tenant, whose users share keys and limits, or the user if there is none.
func (c Command) owner() string {
	if c.Tenant != nil {
		return "tenant\x00" + c.Tenant.Name
	}
	return c.User
}

// keyShare returns the key quota of the user's tenant.
func (c Command) keyShare() keys.Share {
	if c.Tenant == nil {
		return keys.Share{}
	}
	return sharedBy(c.Tenant)
}
