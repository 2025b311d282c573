package manual

// A page describes a page of the manual and the prerequisites of its commands.
type page struct {
	path string
	// setup contains commands to run before the page.
	setup string
	// before maps blocks to the commands to run before each block. Here and below, a string that
	// occurs only in one block identifies that block, so that blocks can be added to a page.
	before map[string]string
	// typed maps the words that a reader must replace to their replacements. Each of these words
	// must be on the page.
	typed map[string]string
	// synopses lists blocks that show the syntax of a command line, and are not run.
	synopses []string
	// leave lists blocks that show a command with its output. Such blocks are not run here; other
	// tests check them.
	leave []string
}

// installed prepares a host with the package installed and the service running.
const installed = `
(mkdir -p /tmp/pkg && cd /tmp/pkg && make package && dpkg -i bin/*.deb)
spdk-proxy hash-password --out /etc/spdk-proxy/secrets/admin.hash
systemctl enable --now spdk-proxy
cp /var/lib/spdk-proxy/tls.crt .
export SPDK_PROXY_URL=https://storage-1:9009 SPDK_PROXY_USER=admin SPDK_PROXY_CA=/var/lib/spdk-proxy/tls.crt
`

// controller prepares the contents of the controller's pod.
const controller = installed + `
mkdir -p /etc/spdkcsi-config /etc/spdkcsi-secret
cat >/etc/spdkcsi-config/config.json <<END
{"nodes": [{"name": "storage-1", "rpcURL": "https://storage-1:9009", "caFile": "/var/lib/spdk-proxy/tls.crt", "targetType": "nvme-tcp", "targetAddr": "127.0.0.1", "lvstores": ["lvs0"]}]}
END
echo "{\"rpcTokens\": [{\"name\": \"storage-1\", \"username\": \"admin\", \"password\": \"$SPDK_PROXY_PASSWORD\"}]}" >/etc/spdkcsi-secret/secret.json
`

// exportForWorker creates an export like those of the driver, which admits the node worker-3. The
// names are those in docs/fencing.md.
const exportForWorker = `
spdk-proxy call nvmf_create_subsystem nqn=nqn.2020-04.io.spdk.csi:uuid:8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d
spdk-proxy call nvmf_subsystem_add_host nqn=nqn.2020-04.io.spdk.csi:uuid:8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d host=nqn.2014-08.org.nvmexpress:uuid:49947f8d-2e1a-516d-833c-28a15f408756
`

// movable gives Kubernetes a claim whose volume kubectl spdkgate can move. The stub of kubectl acts
// as the API server.
const movable = `
cat >/run/kubernetes.json <<END
{"/api/v1/namespaces/shop/persistentvolumeclaims/data": {"metadata": {"name": "data", "namespace": "shop", "uid": "u1", "resourceVersion": "1"}, "status": {"phase": "Bound"},
  "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "spdkcsi-sc", "resources": {"requests": {"storage": "64Mi"}}, "volumeName": "pvc-1"}},
 "/api/v1/persistentvolumes/pvc-1": {"metadata": {"name": "pvc-1", "uid": "u2", "resourceVersion": "2"}, "status": {"phase": "Bound"},
  "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "spdkcsi-sc", "capacity": {"storage": "64Mi"}, "persistentVolumeReclaimPolicy": "Delete", "claimRef": {"namespace": "shop", "name": "data", "uid": "u1"},
   "csi": {"driver": "csi.spdk.io", "volumeHandle": "storage-1:8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"}}},
 "/apis/apps/v1/namespaces/spdkcsi/deployments/spdkcsi-controller": {"metadata": {"name": "spdkcsi-controller"}, "spec": {"template": {"spec": {"containers": [{"name": "spdkcsi-controller"}]}}}},
 "/apis/apps/v1/namespaces/spdkcsi/daemonsets/spdkcsi-node": {"metadata": {"name": "spdkcsi-node"}, "spec": {"template": {"spec": {"containers": [{"name": "spdkcsi-node"}]}}}}}
END
`

var pages = []page{
	{path: "docs/status.md", setup: installed},
	{
		path: "docs/fleet.md",
		setup: installed + `
sed -i 's/^target:$/target:\n  accept_loading_what_hosts_write: true/' /etc/spdk-proxy/spdk-proxy.yaml && systemctl restart spdk-proxy
write_example docs/fleet.md yaml servers.yaml
sed -i '/storage-[23]/d' servers.yaml
cp tls.crt ca.pem && echo "$SPDK_PROXY_PASSWORD" >admin.password`,
		typed: map[string]string{"spdk-proxy fleet servers.yaml --serve": "timeout --preserve-status -s INT 5 spdk-proxy fleet servers.yaml --serve"}, // a reader interrupts it
	},
	{
		path: "docs/exports.md",
		// The stub of systemctl does not start spdk-proxy-keys.
		setup: installed + `
sed -i 's|^    socket: /run/spdk-proxy-keys.sock|    dir: /var/lib/spdk-keys|' /etc/spdk-proxy/spdk-proxy.yaml && mkdir -m 700 /var/lib/spdk-keys && systemctl restart spdk-proxy
echo DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n: >host1.key && chmod 600 host1.key`,
		typed: map[string]string{"192.0.2.11:4420": "127.0.0.1:4420"},
		leave: []string{"nvme gen-dhchap-key"}, // needs nvme-cli
	},
	{path: "docs/events.md", setup: installed + "spdk-proxy call bdev_malloc_create name=m0 num_blocks=8 block_size=512\n(for i in 1 2 3 4 5 6 7 8 9 10; do sleep 1; spdk-proxy call bdev_malloc_create num_blocks=8 block_size=512; done) >/dev/null 2>&1 &"},
	// The tests of cmd/spdk-csi run the second command, on a volume that it deletes.
	{path: "docs/doctor.md", setup: controller, typed: map[string]string{"sleep 10": "sleep 0"}, leave: []string{"--delete-volume"}},
	{path: "docs/fencing.md", setup: controller + exportForWorker},
	{
		path: "docs/kubectl.md", setup: controller + `cd "$REPOSITORY"`, before: map[string]string{"kubectl spdkgate unfence": exportForWorker, "kubectl spdkgate move": movable},
		// The program is already built, and nothing is installed on the host.
		typed: map[string]string{"install bin/kubectl-spdkgate deploy": "mkdir /home/admin/bin && install deploy", "/usr/local/bin/": "/home/admin/bin/", "kubectl spdkgate doctor": "kubectl spdkgate doctor --list-after 0s"},
	},
	{path: "docs/csi-migration.md", setup: controller, typed: map[string]string{"kubectl spdkgate doctor": "kubectl spdkgate doctor --list-after 0s"}},
	{path: "docs/csi-upgrade.md", setup: controller + `cd "$REPOSITORY"`, typed: map[string]string{"kubectl spdkgate doctor": "kubectl spdkgate doctor --list-after 0s"}},
	{
		path: "docs/csi-storage-servers.md",
		setup: controller + `
cp /etc/spdkcsi-config/config.json /etc/spdkcsi-secret/secret.json .
cp "$CERTIFICATES/client-ca.crt" old-ca.crt
cp "$CERTIFICATES/cluster-1-ca.crt" new-ca.crt`,
		typed: map[string]string{"kubectl spdkgate doctor": "kubectl spdkgate doctor --list-after 0s"},
		leave: []string{"helm upgrade"}, // test/suites/e2e runs Helm
	},
	{
		path:  "docs/csi-troubleshooting.md",
		setup: controller,
		before: map[string]string{
			"bdev_lvol_rename":    "spdk-proxy call bdev_lvol_create lvol_name=pvc-1.used size_in_mib=16 lvs_name=lvs0",
			"rm /var/lib/kubelet": "mkdir -p /var/lib/kubelet/plugins/csi.spdk.io/used && touch /var/lib/kubelet/plugins/csi.spdk.io/used/storage-1:11111111-2222-4333-8444-555555555555",
		},
	},
	// The tests in cmd/spdk-csi run spdk-csi move, and those in deploy read the Job.
	{path: "docs/moving.md", setup: movable, leave: []string{"kubectl apply -f deploy/kubernetes/move/job.yaml", "kubectl delete pvc data", "--delete-original\\n", "spdk-csi move --volume"}},
	{path: "docs/host-authentication.md", leave: []string{"nvme gen-dhchap-key"}}, // needs nvme-cli
	{path: "docs/encryption.md"},
	// The tests of cmd/spdk-csi run spdk-csi replica keep with a simulated API server.
	{path: "docs/replication.md", leave: []string{"kubectl get pv pvc-8e2dcb9d", "--stopped-node worker-3 --discard"}},
	{
		path:   "README.md",
		before: map[string]string{"kubectl apply -k": "cd \"$REPOSITORY\""},
	},
	{
		path: "docs/quickstart.md",
		// The page edits files in its clone of the repository.
		setup: `cp -r "$REPOSITORY/deploy" . && git init -q . && git add deploy`,
		before: map[string]string{
			"truncate -s 8G": withoutStore,
			"testpod.yaml": `grep -q '"rpcURL": "https://127.0.0.1:9009"' deploy/kubernetes/config-map.yaml
grep -q "\"password\": \"$(cat spdkcsi.password)\"" deploy/kubernetes/secret.yaml
spdk-proxy call bdev_lvol_create lvs_name=lvs0 lvol_name=pvc-1 size_in_mib=16 --url https://127.0.0.1:9009 --user spdkcsi --password-file spdkcsi.password --ca /var/lib/spdk-proxy/tls.crt`,
		},
		typed: map[string]string{"address=192.0.2.11": "address=127.0.0.1"},
		leave: []string{"modprobe nvme-tcp"}, // test/suites/kernel has a kernel with NVMe over TCP
	},
	{
		path:   "docs/rpc-schema.md",
		before: map[string]string{"schema list": savedByRPCPy, "go run ./cmd/spdk-schema": "cd \"$REPOSITORY\""},
		typed:  map[string]string{"cmd/spdk-sim --socket /tmp/spdk.sock": simulated},
	},
	{path: "deploy/kubernetes/README.md", setup: `cd "$REPOSITORY"`, typed: map[string]string{"/path/to/ca.crt": "$CERTIFICATES/client-ca.crt"}},
	{path: "deploy/helm/spdk-csi/README.md", setup: installed + `cd "$REPOSITORY"`, leave: []string{"helm install", "helm test", "helm uninstall"}}, // test/suites/e2e runs Helm
	{path: "docs/csi-credentials.md", setup: installed + `cd "$REPOSITORY"`},
	{path: "docs/csi-deleted-data.md", setup: installed},
	{path: "docs/csi-placement.md"},
	{
		path: "docs/backup-volumes.md",
		setup: controller + `
mkdir -p bin /backup
head -c 9M /dev/urandom >/backup/data.img # an earlier backup
head -c 5M /dev/urandom >monday.dev && truncate -s 9M monday.dev && cp monday.dev tuesday.dev && head -c 5M /dev/urandom | dd of=tuesday.dev conv=notrunc bs=1M seek=2 status=none && truncate -s 12M tuesday.dev restored.dev
cat >bin/snapshot-metadata-lister <<END
#!/bin/sh
echo "Record#   VolCapBytes  BlockMetadataType   ByteOffset     SizeBytes"
echo "-"
case "\$*" in
*monday*tuesday*|*tuesday*monday*) echo "1 12582912 VARIABLE_LENGTH 2097152 5242880" ;;
*) echo "1 9437184 VARIABLE_LENGTH 0 1048576"; echo "1 9437184 VARIABLE_LENGTH 1048576 4194304" ;;
esac
END
printf '#!/bin/sh
stat -c %%s "$2"
' >bin/blockdev
chmod +x bin/snapshot-metadata-lister bin/blockdev
export PATH="$PWD/bin:$PATH"`,
		typed: map[string]string{"/dev/monday": "monday.dev", "/dev/tuesday": "tuesday.dev", "/dev/restored": "restored.dev"},
		before: map[string]string{"of=/dev/restored": `cmp /backup/data.img tuesday.dev
for failing in awk dd; do # copy_ranges fails if one of its commands fails
  if (set +e +o pipefail; eval "$failing() { return 1; }"; copy_ranges tuesday.ranges tuesday.dev /backup/data.img); then echo "a failed $failing is not noticed"; exit 1; fi
done
if (set +e +o pipefail; copy_ranges missing.ranges tuesday.dev /backup/data.img); then echo "a missing list is not noticed"; exit 1; fi`},
		leave: []string{"spdkgate_lvol_changes"}, // the simulated target has no metadata; test/suites/changes calls real ones
	},
	{path: "docs/csi-snapshots.md", setup: controller + `cd "$REPOSITORY"`},
	{path: "docs/csi-volumes.md"},
	{
		path:  "docs/service.md",
		leave: []string{"spdk_tgt@nvme"}, // needs systemd's templates; package systemd tests the configuration
		// An earlier build has left a package of another version there.
		setup: "mkdir bin && touch bin/spdk-proxy_1.0.0-1_amd64.deb",
		typed: map[string]string{
			"go build -o bin/ ./cmd/spdk-proxy ./cmd/spdk-sim": `(cd "$REPOSITORY" && go build -o /home/admin/bin/ ./cmd/spdk-proxy ./cmd/spdk-sim)`,
			"bin/spdk-sim --socket /tmp/spdk.sock":             "bin/spdk-sim --socket /tmp/spdk.sock &\nuntil spdk-proxy call --socket /tmp/spdk.sock spdk_get_version 2>/dev/null; do sleep 0.1; done",
			"serve --config bin/try/spdk-proxy.yaml":           "serve --config bin/try/spdk-proxy.yaml &\nuntil (exec 3<>/dev/tcp/127.0.0.1/9443) 2>/dev/null; do sleep 0.1; done",
		},
	},
	{
		path:  "docs/authentication.md",
		setup: "(mkdir -p /tmp/pkg && cd /tmp/pkg && make package && dpkg -i bin/*.deb)\nwrite_example docs/authentication.md\nmade_certificates",
		// Without systemd-sysusers, the service has no group.
		typed: map[string]string{"install -m 640 -g spdk-proxy": "install -m 640"},
	},
	{
		path:  "docs/local-socket.md",
		setup: installed + "write_example docs/local-socket.md",
		leave: []string{"scripts/rpc.py"}, // needs SPDK's own directory; test/suites/rpcpy runs rpc.py
	},
	{path: "docs/authorization.md", setup: installed + "spdk-proxy call spdk_get_version", leave: []string{"policy explain"}},
	{
		path:  "docs/observability.md",
		setup: installed + "spdk-proxy call spdk_get_version",
		typed: map[string]string{"--seconds 30": "--seconds 1"},
		leave: []string{"SPDKGATE_DECISION=deny"}, // needs journald; package auditlog tests the fields
	},
	{path: "docs/target-metrics.md", setup: installed + "spdk-proxy call bdev_lvol_create lvol_name=vol1 size_in_mib=16 lvs_name=lvs0"},
	{
		path: "docs/restart.md",
		setup: installed + `
spdk-proxy call bdev_malloc_create name=m0 num_blocks=2048 block_size=512
spdk-proxy call spdkgate_config_save
cp -p /var/lib/spdk-proxy/target/current.json /var/lib/spdk-proxy/target/replaced-20260101T000000.000Z.json`,
		typed: map[string]string{"saved use NAME": "saved use replaced-20260101T000000.000Z.json", "before-TIME.json": "replaced-20260101T000000.000Z.json"},
	},
	{
		path: "docs/tenants.md",
		setup: installed + `
for disk in disk-a disk-b; do spdk-proxy call bdev_malloc_create name=$disk num_blocks=524288 block_size=4096; done
write_example docs/tenants.md yaml tenants.yaml
sed -i s/192.0.2.11:/127.0.0.1:/ tenants.yaml
printf '%s\n' 'listen: "0.0.0.0:9009"' 'tls: {self_signed_dir: /var/lib/spdk-proxy}' | cat - tenants.yaml >/etc/spdk-proxy/spdk-proxy.yaml`,
		// The proxy takes up to 2 s to find out who owns the new lvstore.
		typed: map[string]string{
			"spdk-proxy call --user csi-of-team-a bdev_lvol_cr": "until [ \"$(spdk-proxy call --user csi-of-team-a bdev_lvol_get_lvstores)\" != '[]' ]; do sleep 0.1; done\nspdk-proxy call --user csi-of-team-a bdev_lvol_cr",
			"192.0.2.11:4420": "127.0.0.1:4420",
		},
	},
	{path: "docs/wire.md", setup: installed},
	{path: "docs/console.md", setup: installed},
	{path: "docs/snapshots.md", setup: installed + "systemctl stop spdk-proxy"},
	// The simulated target does not write metadata to its disks, so cmd/spdk-proxy's tests run this
	// command on images of real disks.
	{path: "docs/lvstore-check.md", leave: []string{"check-lvstore"}},
	{
		path: "docs/migration.md",
		setup: `(mkdir -p /tmp/pkg && cd /tmp/pkg && make package && dpkg -i bin/*.deb)
systemctl start rpc-http-proxy
write_example docs/migration.md ini /etc/systemd/system/rpc-http-proxy.service.d/spdk-proxy.conf`,
		before: map[string]string{"hash-password --out /etc/spdk-proxy/secrets/stack.hash": "write_example docs/migration.md"},
	},
	{
		path:  "docs/backup.md",
		setup: installed + "mkdir -p /var/lib/spdk-keys",
		before: map[string]string{
			"tar -C / -xzpf": "cp spdk-proxy-backup.tgz /tmp && rm -rf /etc/spdk-proxy/* /var/lib/spdk-proxy/* /var/lib/spdk-keys && systemctl stop spdk-proxy",
		},
		leave: []string{"chgrp spdk-proxy /etc/spdk-proxy/backup.tokens", "saved fetch", "saved prepare"}, // need two hosts: cmd/spdk-proxy's TestFetchedConfigurationRestoresATarget
	},
}

// withoutStore removes the lvstore that the manual's examples use, because the page creates it
// itself.
const withoutStore = `
spdk-proxy call --socket /var/tmp/spdk.sock bdev_lvol_delete_lvstore lvs_name=lvs0
spdk-proxy call --socket /var/tmp/spdk.sock bdev_aio_delete name=disk0
mkdir -p /srv
`

// savedByRPCPy is a stand-in for SPDK's own script.
const savedByRPCPy = `
mkdir -p scripts
cat > scripts/rpc.py <<'END'
#!/bin/sh
echo '{"subsystems":[{"subsystem":"bdev","config":[{"method":"bdev_malloc_create","params":{"name":"m0","num_blocks":2048,"block_size":512}}]}]}'
END
chmod +x scripts/rpc.py
`

// simulated runs the simulated target, and calls it until it responds, because the socket of an
// earlier run may still exist without a listening process.
const simulated = `cmd/spdk-sim --socket /tmp/spdk.sock &
until spdk-proxy call --socket /tmp/spdk.sock spdk_get_version 2>/dev/null; do sleep 0.1; done
kill $!`

// prelude defines the functions that are available in each page's shell.
const prelude = `
set -eE -o pipefail
trap 'echo "this command of the manual failed: $BASH_COMMAND" >&2' ERR

# write_example PAGE [LANGUAGE FILE] writes the page's first block of a language into a file.
write_example() {
	local to=${3:-/etc/spdk-proxy/spdk-proxy.yaml}
	mkdir -p "$(dirname "$to")"
	awk -v begin="^${TICKS}${2:-yaml}" -v end="^$TICKS" '$0 ~ begin && !done {on = 1; next} $0 ~ end {if (on) done = 1; on = 0} on' "$REPOSITORY/$1" >"$to"
	[ -s "$to" ]
}

made_certificates() {
	cp "$CERTIFICATES/client-ca.crt" "$CERTIFICATES/cluster-1-ca.crt" /etc/spdk-proxy/
	cp "$CERTIFICATES"/dashboard.* .
}
`
