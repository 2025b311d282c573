package rpcschema

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParametersFitTheRelease(t *testing.T) {
	release := MustRelease("v26.05")
	const formerName = "ioat_scan_accel_engine"
	scan, err := Default().Find(formerName, Release{})
	require.NoError(t, err)
	require.NotEqual(t, formerName, scan.Name)
	_, done, err := scan.Fit(formerName, nil, release, true)
	require.NoError(t, err)
	assert.Equal(t, []Translation{{From: formerName, To: scan.Name}}, done)
	_, done, err = scan.Fit(formerName, nil, release, false)
	var unknown *UnknownMethodError
	require.ErrorAs(t, err, &unknown)
	assert.Equal(t, UnknownMethodError{Method: formerName, Now: scan.Name}, *unknown)
	assert.Empty(t, done)

	create, err := Default().Find("bdev_lvol_create", Release{})
	require.NoError(t, err)
	old := map[string]any{"lvol_name": "v", "lvs_name": "l", "size": json.Number("1048577")}
	params, done, err := create.Fit("bdev_lvol_create", old, release, true)
	require.NoError(t, err)
	assert.EqualValues(t, "2", params["size_in_mib"])
	require.Len(t, done, 1)
	assert.Equal(t, "size", done[0].From)
	params, done, err = create.Fit("bdev_lvol_create", old, release, false)
	require.NoError(t, err)
	assert.Equal(t, old, params, "left for validation to refuse")
	assert.Empty(t, done)

	version, err := Default().Find("spdk_get_version", Release{})
	require.NoError(t, err)
	params, _, err = version.Fit("spdk_get_version", map[string]any{}, release, false)
	require.NoError(t, err)
	assert.Nil(t, params, "empty parameters are left out with and without translation")
}
