package spdkrpc

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// recorder is a Caller for a target of a given release. It records the requests.
type recorder struct {
	release string
	answer  string
	err     error
	sent    []string
}

func (r *recorder) Call(_ context.Context, method string, params, result any) error {
	text := []byte("none")
	if params != nil {
		text, _ = jsonrpc.Marshal(params)
	}
	r.sent = append(r.sent, method+" "+string(text))
	if method == "spdk_get_version" {
		return json.Unmarshal([]byte(`{"version":"SPDK `+r.release+`"}`), result)
	}
	if r.err != nil {
		return r.err
	}
	return json.Unmarshal([]byte(r.answer), result)
}

func TestRequestsFitTheRelease(t *testing.T) {
	for release, want := range map[string]string{
		"v23.01": `bdev_lvol_create {"lvol_name":"a","lvs_name":"l","size":5242880}`,
		"v24.01": `bdev_lvol_create {"lvol_name":"a","lvs_name":"l","size_in_mib":5}`,
		"v26.05": `bdev_lvol_create {"lvol_name":"a","lvs_name":"l","size_in_mib":5}`,
	} {
		r := &recorder{release: release, answer: `"uuid"`}
		id, err := NewClient(r).BdevLvolCreate(t.Context(), BdevLvolCreateParams{LvolName: "a", SizeInMiB: 5, LvsName: new("l")})
		require.NoError(t, err)
		assert.Equal(t, "uuid", id)
		assert.Equal(t, []string{"spdk_get_version none", want}, r.sent, release)
	}
}

func TestReleaseIsQueriedAgainAfterUnexpectedErrors(t *testing.T) {
	r := &recorder{release: "v26.05", answer: `"uuid"`}
	c := NewClient(r)
	create := func() error {
		_, err := c.BdevLvolCreate(t.Context(), BdevLvolCreateParams{LvolName: "a", SizeInMiB: 5, LvsName: new("l")})
		return err
	}
	require.NoError(t, create())
	require.NoError(t, create())
	assert.Len(t, r.sent, 3)
	r.err = &Error{Kind: InvalidParams}
	require.Error(t, create())
	r.err, r.release = nil, "v23.01" // the target was downgraded
	require.NoError(t, create())
	assert.Contains(t, r.sent[len(r.sent)-1], `"size":5242880`)
}

// If a change of the target's release cannot explain an error, the client does not query the
// release again.
func TestReleaseIsNotQueriedAfterOtherErrors(t *testing.T) {
	for name, c := range map[string]struct {
		kind Kind
		call func(*Client) error
	}{
		"a method of the proxy that its configuration lacks": {MethodNotFound, func(c *Client) error {
			_, err := c.SpdkgateConfigAwait(t.Context(), SpdkgateConfigAwaitParams{})
			return err
		}},
		"no such subsystem, from v26.09 on": {InvalidParams, func(c *Client) error {
			_, err := c.NVMfGetSubsystems(t.Context(), NVMfGetSubsystemsParams{NQN: new("nqn.2016-06.io.spdk:none")})
			return err
		}},
		"no such bdev": {NoSuchDevice, func(c *Client) error {
			_, err := c.BdevGetBdevs(t.Context(), BdevGetBdevsParams{Name: new("none")})
			return err
		}},
	} {
		r := &recorder{release: "v26.09", answer: "[]"}
		client := NewClient(r)
		_, err := client.Release(t.Context())
		require.NoError(t, err)
		r.err = &Error{Kind: c.kind}
		require.ErrorIs(t, c.call(client), c.kind, name)
		r.err = nil
		r.sent = nil
		_, err = client.Release(t.Context())
		require.NoError(t, err)
		assert.Empty(t, r.sent, name)
	}
}

func TestParameterOfALaterReleaseIsRejected(t *testing.T) {
	r := &recorder{release: "v24.01", answer: `"uuid"`}
	_, err := NewClient(r).BdevLvolCreateLvstore(t.Context(), BdevLvolCreateLvstoreParams{BdevName: "b", LvsName: "l", MDPageSize: new(uint32(4096))})
	require.ErrorIs(t, err, InvalidParams)
	assert.ErrorContains(t, err, "/md_page_size: bdev_lvol_create_lvstore has this parameter in SPDK v25.01 and later, but the target runs v24.01")
	assert.Equal(t, []string{"spdk_get_version none"}, r.sent, "nothing may be changed")
}

func TestEmptyParametersAreOmitted(t *testing.T) {
	r := &recorder{release: "v26.05", answer: `[]`}
	_, err := NewClient(r).BdevLvolGetLvstores(t.Context(), BdevLvolGetLvstoresParams{})
	require.NoError(t, err)
	assert.Equal(t, []string{"bdev_lvol_get_lvstores none"}, r.sent, "SPDK refuses an empty object here")
}

func TestFalseResultIsAnError(t *testing.T) {
	r := &recorder{release: "v26.05", answer: `false`}
	require.ErrorIs(t, NewClient(r).BdevLvolDelete(t.Context(), BdevLvolDeleteParams{Name: "x"}), Failed)
	r.answer = "true"
	require.NoError(t, NewClient(r).BdevLvolDelete(t.Context(), BdevLvolDeleteParams{Name: "x"}))
}
