package connect

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	uuid1 = "0b6a4b3e-2f1d-4c5a-9e8f-1a2b3c4d5e6f"
	uuid2 = "11111111-2222-4333-8444-555555555555"
	nqn1  = "nqn.2020-04.io.spdk.csi:uuid:" + uuid1
	iqn1  = "iqn.2016-06.io.spdk.csi:uuid:" + uuid1
)

func TestExportsAreParsed(t *testing.T) {
	legacy := map[string]string{
		"targetType": "TCP", "targetAddr": "192.168.1.100", "targetPort": "4420", "nqn": nqn1,
		"model": uuid1, "lvolSize": "268435456", "lvstore": "lvs0", "storage.kubernetes.io/csiProvisionerIdentity": "x",
	}
	with := func(m map[string]string, pairs ...string) map[string]string {
		m = maps.Clone(m)
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
	for name, tt := range map[string]struct {
		context map[string]string
		want    Export
	}{
		"made by spdk-csi": {legacy, Export{Transport: TCP, Address: "192.168.1.100", Port: "4420", NQN: nqn1, LegacyUUID: uuid1, SizeBytes: 268435456}},
		"made by this driver": {with(legacy, "nsUUID", strings.ToUpper(uuid2), "targetType", "nvme-RDMA"),
			Export{Transport: RDMA, Address: "192.168.1.100", Port: "4420", NQN: nqn1, NSUUID: uuid2, SizeBytes: 268435456}},
		"IPv6": {with(legacy, "targetAddr", "[fd00::1]", "lvolSize", ""),
			Export{Transport: TCP, Address: "fd00::1", Port: "4420", NQN: nqn1, LegacyUUID: uuid1}},
		"host name, nothing legacy": {map[string]string{"targetType": "nvme-tcp", "targetAddr": "spdk-0.storage.example", "targetPort": "1", "nqn": "nqn.2026-11.io.x:a"},
			Export{Transport: TCP, Address: "spdk-0.storage.example", Port: "1", NQN: "nqn.2026-11.io.x:a"}},
		"iSCSI": {map[string]string{"targetType": "iSCSI", "targetAddr": "10.0.0.1", "targetPort": "3260", "iqn": iqn1, "nqn": "ignored"},
			Export{Transport: ISCSI, Address: "10.0.0.1", Port: "3260", IQN: iqn1, LegacyUUID: uuid1}},
		"loop": {map[string]string{"targetType": "loop", "nqn": nqn1, "nsUUID": uuid1, "loopDir": "/data/../data", "targetAddr": "127.0.0.1"},
			Export{Transport: Loop, NQN: nqn1, NSUUID: uuid1, LoopDir: "/data"}},
		"loop, iSCSI's name": {map[string]string{"targetType": "loop", "iqn": iqn1, "nsUUID": uuid1, "loopDir": "/data"},
			Export{Transport: Loop, IQN: iqn1, NSUUID: uuid1, LoopDir: "/data"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseExport(tt.context, nil)
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
			b, err := json.Marshal(got)
			require.NoError(t, err)
			var back Export
			require.NoError(t, json.Unmarshal(b, &back))
			assert.Equal(t, got, back)
		})
	}

	iscsi := map[string]string{"targetType": "iscsi", "targetAddr": "10.0.0.1", "targetPort": "3260", "iqn": iqn1}
	loop := map[string]string{"targetType": "loop", "nqn": nqn1, "nsUUID": uuid1, "loopDir": "/data"}
	for name, tt := range map[string]struct {
		context map[string]string
		says    string
	}{
		"no type":                    {with(legacy, "targetType", ""), `"targetType" is missing`},
		"unknown type":               {with(legacy, "targetType", "fc"), "tcp, rdma or iscsi"},
		"no address":                 {with(legacy, "targetAddr", ""), `"targetAddr" is missing`},
		"wildcard":                   {with(legacy, "targetAddr", "0.0.0.0"), "not the wildcard"},
		"address with options":       {with(legacy, "targetAddr", "10.0.0.1,hostnqn=x"), `"targetAddr" is "10.0.0.1,hostnqn=x"`},
		"no port":                    {with(legacy, "targetPort", ""), `"targetPort" is missing`},
		"port 0":                     {with(legacy, "targetPort", "0"), "1 to 65535"},
		"port with options":          {with(legacy, "targetPort", "4420,dhchap_secret=x"), "1 to 65535"},
		"port with sign":             {with(legacy, "targetPort", "+4420"), "1 to 65535"},
		"no NQN":                     {with(legacy, "nqn", ""), `"nqn" is missing`},
		"no NQN either":              {with(legacy, "nqn", "", "iqn", iqn1), `"nqn" is missing`},
		"NQN with options":           {with(legacy, "nqn", nqn1+",hostnqn=x"), "without spaces and commas"},
		"NQN with newline":           {with(legacy, "nqn", nqn1+"\n"), "without spaces and commas"},
		"NQN too long":               {with(legacy, "nqn", "nqn.2020-04.x:"+strings.Repeat("a", 210)), "223"},
		"discovery NQN is no export": {with(legacy, "nqn", "discovery"), "nqn.<year>"},
		"IQN is a path":              {with(iscsi, "iqn", "iqn.2016-06.x:../../etc"), "letters, digits"},
		"IQN missing":                {with(iscsi, "iqn", ""), `"iqn" is missing`},
		"UUID":                       {with(legacy, "nsUUID", "{"+uuid1+"}"), "a UUID such as"},
		"UUID of zeros":              {with(legacy, "nsUUID", "00000000-0000-0000-0000-000000000000"), "not all zero"},
		"model of another volume":    {with(legacy, "model", uuid2), `"model"`},
		"size":                       {with(legacy, "lvolSize", "1GiB"), "bytes"},
		"negative size":              {with(legacy, "lvolSize", "-1"), "positive"},
		"loop without directory":     {with(loop, "loopDir", ""), `"loopDir" is missing`},
		"loop, relative directory":   {with(loop, "loopDir", "data"), "absolute"},
		"loop without name":          {with(loop, "nqn", ""), `"iqn" is missing`},
		"loop, NQN with options":     {with(loop, "nqn", nqn1+",hostnqn=x"), "without spaces and commas"},
		"empty":                      {nil, `"targetType" is missing`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseExport(tt.context, nil)
			require.ErrorIs(t, err, ErrInvalidExport)
			require.ErrorContains(t, err, tt.says)
			assert.Zero(t, got)
		})
	}
}

func FuzzParseExport(f *testing.F) {
	f.Add("tcp", "10.0.0.1", "4420", nqn1, "", uuid1, "1", "", "")
	f.Add("iscsi", "[::1]", "3260", "", iqn1, "", "", uuid2, "")
	f.Add("loop", "", "", nqn1, "", "", "", uuid2, "/x")
	f.Fuzz(func(t *testing.T, kind, addr, port, nqn, iqn, model, size, id, dir string) {
		e, err := ParseExport(map[string]string{
			KeyTargetType: kind, KeyTargetAddr: addr, KeyTargetPort: port, KeyNQN: nqn, KeyIQN: iqn,
			KeyModel: model, KeyLvolSize: size, KeyNSUUID: id, KeyLoopDir: dir,
		}, nil)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalidExport)
			return
		}
		if e.Transport == TCP || e.Transport == RDMA {
			opts := fabricsOptions(e, e.Address, HostOf("n"), NVMeOptions{})
			require.Equal(t, 8, strings.Count(opts, ","), "no option was injected")
			require.NotContains(t, opts, "\n")
		}
		require.NotContains(t, e.Target(), "/..")
	})
}

func TestHostNamesNeverChange(t *testing.T) {
	// The derived names must never change: a release with other names would lock nodes out of their
	// volumes.
	assert.Equal(t, Host{
		UUID: "c6d2d5a6-325d-5a5d-b891-5336d945c6cb",
		NQN:  "nqn.2014-08.org.nvmexpress:uuid:c6d2d5a6-325d-5a5d-b891-5336d945c6cb",
		IQN:  "iqn.2026-11.io.spdkgate:host:c6d2d5a6-325d-5a5d-b891-5336d945c6cb",
	}, HostOf("worker-1"))
	assert.NotEqual(t, HostOf("worker-1"), HostOf("worker-2"))
	assert.NotEqual(t, HostOf("worker-1"), HostOf("Worker-1"))
	assert.True(t, validNQN(HostOf("").NQN))
	assert.True(t, validIQN(HostOf("any node").IQN))

	h := HostOf("worker-1").Multipath()
	assert.Equal(t, "nqn.2014-08.org.nvmexpress:uuid:"+h.UUID, h.NQN)
	assert.EqualValues(t, 8, uuid.MustParse(h.UUID).Version(), "package export recognises it by the version")
	assert.Equal(t, HostOf("worker-1").IQN, h.IQN)
	assert.NotEqual(t, HostOf("worker-2").Multipath(), h)
}

func TestInvalidConnectorOptionsAreRejected(t *testing.T) {
	_, err := New(Host{}, Options{})
	require.ErrorContains(t, err, "HostOf")
	for _, o := range []NVMeOptions{
		{KeepAlive: -1}, {ReconnectDelay: 1500 * 1e6}, {QueueSize: 8}, {QueueSize: 2000}, {IOQueues: -1},
		{ReconnectDelay: 60 * 1e9, CtrlLossTimeout: 30 * 1e9},
	} {
		_, err := New(HostOf("n"), Options{NVMe: o})
		require.Error(t, err, "%+v", o)
	}
	_, err = New(HostOf("n"), Options{NVMe: NVMeOptions{CtrlLossTimeout: -1e9}})
	require.NoError(t, err)
}

func TestFabricsOptionsAreFormatted(t *testing.T) {
	e := Export{Transport: TCP, Port: "4420", NQN: nqn1}
	h := Host{NQN: "HOSTNQN", UUID: "HOSTID"}
	assert.Equal(t, "transport=tcp,traddr=10.0.0.1,trsvcid=4420,nqn="+nqn1+",hostnqn=HOSTNQN,hostid=HOSTID,ctrl_loss_tmo=600,reconnect_delay=2,keep_alive_tmo=5",
		fabricsOptions(e, "10.0.0.1", h, NVMeOptions{}))
	e.Transport = RDMA
	assert.Equal(t, "transport=rdma,traddr=fd00::1,trsvcid=4420,nqn="+nqn1+",hostnqn=HOSTNQN,hostid=HOSTID,ctrl_loss_tmo=-1,reconnect_delay=1,keep_alive_tmo=9,fast_io_fail_tmo=7,nr_io_queues=3,queue_size=64",
		fabricsOptions(e, "fd00::1", h, NVMeOptions{CtrlLossTimeout: -1e9, ReconnectDelay: 1e9, KeepAlive: 9e9, FastIOFail: 7e9, IOQueues: 3, QueueSize: 64}))

	// The class's options override the node's.
	e.Transport, e.Options = TCP, map[string]string{
		"ctrl_loss_tmo": "30", "fast_io_fail_tmo": "-1", "nr_io_queues": "2", "hdr_digest": "true", "data_digest": "false",
	}
	assert.Equal(t, "transport=tcp,traddr=10.0.0.1,trsvcid=4420,nqn="+nqn1+",hostnqn=HOSTNQN,hostid=HOSTID,ctrl_loss_tmo=30,reconnect_delay=1,keep_alive_tmo=5,nr_io_queues=2,hdr_digest",
		fabricsOptions(e, "10.0.0.1", h, NVMeOptions{CtrlLossTimeout: 60e9, ReconnectDelay: 1e9, FastIOFail: 7e9}))
	e.Transport, e.Options = RDMA, map[string]string{"hdr_digest": "true", "data_digest": "true", "fast_io_fail_tmo": "4"}
	assert.Equal(t, "transport=rdma,traddr=10.0.0.1,trsvcid=4420,nqn="+nqn1+",hostnqn=HOSTNQN,hostid=HOSTID,ctrl_loss_tmo=600,reconnect_delay=2,keep_alive_tmo=5,fast_io_fail_tmo=4",
		fabricsOptions(e, "10.0.0.1", h, NVMeOptions{}))
}

func TestNVMeOptionsAreParsed(t *testing.T) {
	m := map[string]string{KeyTargetType: "tcp", KeyTargetAddr: "10.0.0.1", KeyTargetPort: "4420", KeyNQN: nqn1, "queue_size": "64", "data_digest": "true"}
	e, err := ParseExport(m, nil)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"queue_size": "64", "data_digest": "true"}, e.Options)
	for key, value := range map[string]string{
		"queue_size": "64,hostnqn=x", "ctrl_loss_tmo": "", "keep_alive_tmo": "-1", "hdr_digest": "1", "nr_io_queues": "+3", "reconnect_delay": "3601",
	} {
		bad := maps.Clone(m)
		bad[key] = value
		_, err := ParseExport(bad, nil)
		require.ErrorIs(t, err, ErrInvalidExport, "%s=%q", key, value)
		assert.ErrorContains(t, err, key)
	}
	m[KeyTargetType], m[KeyIQN] = "iscsi", "iqn.2026-11.io.spdkgate.test:x"
	e, err = ParseExport(m, nil)
	require.NoError(t, err)
	assert.Empty(t, e.Options, "iSCSI has none of them")
}
