# The API server that kubectl spdkgate move calls, with its controllers. The input maps paths to
# objects. The output is the response and the new map.
def named($o): $o.metadata.name;
def bound: . + {status: {phase: "Bound"}};
def copied: # the PersistentVolume that spdk-csi move prints
  {apiVersion: "v1", kind: "PersistentVolume", metadata: {name: "pvc-5d1fa6ea-6cd5-4a51-8a0b-3f1b47a5d9f0"},
    spec: (.["/api/v1/persistentvolumes/pvc-1"].spec | .csi.volumeHandle = "storage-2:5d1fa6ea-6cd5-4a51-8a0b-3f1b47a5d9f0" | del(.claimRef.uid))};
. as $all
| ($path | split("?")) as $parts
| (length | tostring) as $version
| if $verb == "get" then
    if ($parts[0] | endswith("/log")) then {response: ("copy: 64.0 MiB of 64.0 MiB\n" + ($all | copied | tojson | "{\n " + .[1:-1] + "\n}\n"))}
    else {response: {items: [to_entries[] | select((.key | split("/")[:-1] | join("/")) == $parts[0]) | .value
      | select(((($parts[1] // "") | capture("fieldSelector=metadata.name%3D(?<name>[^&]*)").name) // named(.)) == named(.))]}} end
    | .all = $all
  elif $verb == "create" then
    ($body | .metadata += {uid: ("uid-" + $version), resourceVersion: $version}
      | if .kind == "PersistentVolumeClaim" then bound elif .kind == "Job" then .status = {conditions: [{type: "Complete", status: "True"}]} else . end) as $o
    | {response: $o, all: ($all | .[$path + "/" + named($o)] = $o
      | if $o.kind == "PersistentVolumeClaim" then .["/api/v1/persistentvolumes/" + $o.spec.volumeName] |= (bound | .spec.claimRef.uid = $o.metadata.uid)
        elif $o.kind == "Job" then .["/api/v1/namespaces/spdkcsi/pods/move-x"] = {metadata: {name: "move-x"}, status: {containerStatuses: [{state: {terminated: {}}}]}}
        else . end)}
  elif $verb == "replace" then {response: $body, all: ($all | .[$path] = $body)}
  else {response: {}, all: ($all | del(.[$path]) | if ($path | contains("/configmaps/")) then with_entries(select(.key | contains("/jobs/") | not)) else . end)} end
