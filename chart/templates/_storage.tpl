{{- /* Is one of the chart's own file systems on? {enabled, ip} says so, the first before the second. */}}
{{- define "a4.isOn" -}}
{{- if kindIs "invalid" .enabled -}}
  {{- if .ip }}true{{ end -}}
{{- else -}}
  {{- include "a4.true" .enabled -}}
{{- end -}}
{{- end -}}

{{- /* An address, or what is wrong with it. Takes {key, ip, command}. */}}
{{- define "a4.addressProblem" -}}
{{- if not .ip -}}
{{ .key }} is enabled without an address: set {{ .key }}.ip, as `{{ .command }}` shows it
{{- else if not (regexMatch "^[A-Za-z0-9]([A-Za-z0-9.:-]*[A-Za-z0-9])?$" (include "a4.text" .ip)) -}}
{{ .key }}.ip={{ .ip }} is no address: write that of the server, as `{{ .command }}` shows it
{{- end -}}
{{- end -}}

{{- /* One mounted volume: {from, volume, mount}. Takes {from, name, path, source, readOnly}. */}}
{{- define "a4.mounted" -}}
{{- $mount := dict "name" .name "mountPath" .path -}}
{{- if .readOnly }}{{ $_ := set $mount "readOnly" true }}{{ end -}}
{{- dict "from" .from "volume" (merge (dict "name" .name) .source) "mount" $mount | toJson -}}
{{- end -}}

{{- /* Does a driver mount the NFS? The unified testbed's chart mounted plain NFS, whatever `region` and `instance` said; only its
     values files have `workflow`. */}}
{{- define "a4.byFilestore" -}}
{{- if and ((.Values.volumes | default dict).nfs | default dict).instance (kindIs "invalid" (.Values.workload | default dict).workflow) }}true{{ end -}}
{{- end -}}

{{- /* NFS, Lustre and the user's claims: {mounted, nfs, lustre, shared, claims, problems, notes}; `nfs` and `lustre` say whether
     they are on, `shared` is the directory that all pods share. */}}
{{- define "a4.fileSystems" -}}
{{- $problems := list -}}
{{- $notes := list -}}
{{- $mounted := list -}}
{{- $volumes := .Values.volumes | default dict -}}
{{- $name := (include "a4.job" . | fromJson).name -}}
{{- $nfs := $volumes.nfs | default dict -}}
{{- $lustre := $volumes.lustre | default dict -}}
{{- $nfsOn := include "a4.isOn" $nfs -}}
{{- $lustreOn := include "a4.isOn" $lustre -}}
{{- $lustreClaim := include "a4.text" $lustre.pvcName | default (printf "%s-lustre" $name) -}}
{{- $nfsPath := $nfs.mountPath | default "/mnt" -}}
{{- $lustrePath := $lustre.mountPath | default "/lustre" -}}
{{- range $key, $system := dict "volumes.nfs" $nfs "volumes.lustre" $lustre -}}
  {{- if and (kindIs "invalid" $system.enabled) (kindIs "string" $system.ip) (not $system.ip) -}}
    {{- $problems = append $problems (printf "%s.ip is empty: if it came from a variable of your shell, that one is not set; to do without, set %s.enabled=false" $key $key) -}}
  {{- end -}}
{{- end -}}

{{- range $key, $parts := dict "volumes.nfs" (pick (ternary $nfs dict (not (empty $nfsOn))) "volume" "region" "instance") "volumes.lustre" (pick (ternary $lustre dict (not (empty $lustreOn))) "filesystem" "instanceName" "projectId" "location") -}}
  {{- range $part, $value := $parts -}}
    {{- if regexMatch "^<.*>$|^REGION_NAME$|^FILESTORE_INSTANCE_NAME$" (include "a4.text" $value) -}}
      {{- $problems = append $problems (printf "%s.%s is %s, as the old values file has it: write your own" $key $part $value) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}

{{- $claims := list -}}
{{- range (include "a4.items" ($volumes.pvcMounts | default list) | fromJson).items -}}
  {{- $claim := include "a4.text" .item.claimName -}}
  {{- $own := include "a4.true" .item.own -}}
  {{- $off := "" -}}
  {{- if and (has $claim (list "nfs-pvc" (printf "%s-nfs" $name))) (not $own) -}}
    {{- if $nfsOn }}{{ $nfsPath = .item.mountPath | default $nfsPath }}{{ else }}{{ $off = "volumes.nfs" }}{{ end -}}
  {{- else if and (has $claim (list "lustre-pvc" (printf "%s-lustre-pvc" $name) $lustreClaim)) (not $own) -}}
    {{- if $lustreOn }}{{ $lustrePath = .item.mountPath | default $lustrePath }}{{ else }}{{ $off = "volumes.lustre" }}{{ end -}}
  {{- else if and $claim .item.mountPath -}}
    {{- $claims = append $claims . -}}
  {{- else -}}
    {{- $problems = append $problems (printf "volumes.pvcMounts[%d]: write both claimName and mountPath" (int .at)) -}}
  {{- end -}}
  {{- if $off -}}
    {{- $notes = append $notes (printf "volumes.pvcMounts names %s, but %s is off: nothing is mounted there. If it is a claim of your own, add own: true to it" $claim $off) -}}
  {{- end -}}
{{- end -}}

{{- if $nfsOn -}}
  {{- with include "a4.addressProblem" (dict "key" "volumes.nfs" "ip" $nfs.ip "command" "gcloud filestore instances list") }}{{ $problems = append $problems . }}{{ end -}}
  {{- if not $nfs.volume -}}
    {{- $problems = append $problems "volumes.nfs.volume is not set: write the name of the exported share" -}}
  {{- end -}}
  {{- if and $nfs.instance (not (include "a4.byFilestore" .)) -}}
    {{- $notes = append $notes "volumes.nfs.instance does nothing beside workload.workflow: these are values of the unified testbed, whose chart mounted plain NFS. For the Filestore CSI driver drop workload.workflow" -}}
  {{- else if and $nfs.instance (not $nfs.region) -}}
    {{- $problems = append $problems "volumes.nfs.instance without volumes.nfs.region: the Filestore CSI driver needs both (the zone, or the region of a regional instance); for plain NFS leave out the instance" -}}
  {{- end -}}
  {{- $mounted = append $mounted (include "a4.mounted" (dict "from" "volumes.nfs" "name" "nfs" "path" $nfsPath "source" (dict "persistentVolumeClaim" (dict "claimName" (printf "%s-nfs" $name)))) | fromJson) -}}
{{- end -}}
{{- if $lustreOn -}}
  {{- with include "a4.addressProblem" (dict "key" "volumes.lustre" "ip" $lustre.ip "command" "gcloud lustre instances list") }}{{ $problems = append $problems . }}{{ end -}}
  {{- range list "filesystem" "instanceName" "projectId" "location" -}}
    {{- if not (get $lustre .) -}}
      {{- $problems = append $problems (printf "volumes.lustre is enabled without %s: set volumes.lustre.%s, as `gcloud lustre instances list` shows it" . .) -}}
    {{- end -}}
  {{- end -}}
  {{- $mounted = append $mounted (include "a4.mounted" (dict "from" "volumes.lustre" "name" "lustre" "path" $lustrePath "source" (dict "persistentVolumeClaim" (dict "claimName" $lustreClaim))) | fromJson) -}}
{{- end -}}
{{- $ownPath := "" -}}
{{- range $claims -}}
  {{- $readOnly := include "a4.true" .item.readOnly -}}
  {{- if not (or $readOnly $ownPath) }}{{ $ownPath = .item.mountPath }}{{ end -}}
  {{- $mounted = append $mounted (include "a4.mounted" (dict "from" (printf "volumes.pvcMounts[%d]" (int .at)) "name" (printf "pvc-%d" (int .at)) "path" .item.mountPath "readOnly" $readOnly "source" (dict "persistentVolumeClaim" (dict "claimName" (include "a4.text" .item.claimName)))) | fromJson) -}}
{{- end -}}
{{- $shared := coalesce (ternary $lustrePath "" (not (empty $lustreOn))) (ternary $nfsPath "" (not (empty $nfsOn))) $ownPath | default "" -}}
{{- dict "mounted" $mounted "nfs" $nfsOn "lustre" $lustreOn "shared" $shared "claims" (len $claims) "problems" $problems "notes" $notes | toJson -}}
{{- end -}}

{{- /* Buckets through GCS FUSE: {mounted, results, problems, notes}; `results` is the bucket at /gcs. */}}
{{- define "a4.buckets" -}}
{{- $problems := list -}}
{{- $notes := list -}}
{{- $mounted := list -}}
{{- $results := "" -}}
{{- $volumes := .Values.volumes | default dict -}}
{{- $network := include "a4.network" . | fromJson -}}
{{- $entries := list -}}
{{- if ne (include "a4.text" $volumes.gcsVolumes) "false" -}}
  {{- $entries = (include "a4.items" ($volumes.gcsMounts | default list) | fromJson).items -}}
{{- end -}}
{{- $identity := include "a4.text" $volumes.gcsPodIdentity | default "auto" -}}
{{- if eq $identity "auto" }}{{ $identity = ternary "true" "node" (ne (include "a4.text" $.Values.serviceAccountName) "") }}{{ end -}}
{{- range $entries -}}
  {{- $key := printf "volumes.gcsMounts[%d]" (int .at) -}}
  {{- $bucket := include "a4.text" .item.bucketName -}}
  {{- $path := .item.mountPath | default (ternary "/gcs" "" (eq (int .at) 0)) -}}
  {{- if not $bucket -}}
    {{- $notes = append $notes (printf "%s has no bucketName: no bucket is mounted for it" $key) -}}
  {{- else if hasPrefix "gs://" $bucket -}}
    {{- $problems = append $problems (printf "%s.bucketName=%s: write the name without gs://" $key $bucket) -}}
  {{- else if contains "/" $bucket -}}
    {{- $problems = append $problems (printf "%s.bucketName=%s: write the bucket's name alone; for a directory in it add mountOptions: implicit-dirs,only-dir=…" $key $bucket) -}}
  {{- else if regexMatch "[^A-Za-z0-9._-]" $bucket -}}
    {{- $problems = append $problems (printf "%s.bucketName=%s is not the name of a bucket: write one that `gcloud storage ls` shows, without gs://" $key $bucket) -}}
  {{- else if not $path -}}
    {{- $problems = append $problems (printf "%s has no mountPath: say where bucket %s belongs" $key $bucket) -}}
  {{- else -}}
    {{- if eq (clean $path) "/gcs" }}{{ $results = $bucket }}{{ end -}}
    {{- $attributes := dict "bucketName" $bucket "mountOptions" (include "a4.text" .item.mountOptions | default "implicit-dirs") -}}
    {{- if and $network.host (eq $identity "true") -}}
      {{- /* Without it the driver takes the node's service account in pods that use the node's network. */}}
      {{- $_ := set $attributes "hostNetworkPodKSA" "true" -}}
    {{- end -}}
    {{- /* Buckets have dots, underscores and long names; volumes must not. */}}
    {{- $mounted = append $mounted (include "a4.mounted" (dict "from" $key "name" (printf "gcs-%d" (int .at)) "path" $path "source" (dict "csi" (dict "driver" "gcsfuse.csi.storage.gke.io" "volumeAttributes" $attributes))) | fromJson) -}}
  {{- end -}}
{{- end -}}
{{- if and $mounted $network.host (eq $identity "node") -}}
  {{- $notes = append $notes "buckets are opened as the nodes' service account, which needs the roles for them (docs/deployments/storage.md): to open them as an account of your own, set serviceAccountName" -}}
{{- end -}}
{{- dict "mounted" $mounted "results" $results "problems" $problems "notes" $notes | toJson -}}
{{- end -}}

{{- /* Annotations of the pod for the sidecars that GKE adds. Takes {volumes, buckets, parallelstore}. */}}
{{- define "a4.storageAnnotations" -}}
{{- $annotations := dict -}}
{{- if .buckets -}}
  {{- $limits := .volumes.gcsSidecar | default dict -}}
  {{- $_ := set $annotations "gke-gcsfuse/volumes" "true" -}}
  {{- range $key, $limit := dict "cpu-limit" $limits.cpuLimit "memory-limit" $limits.memoryLimit "ephemeral-storage-limit" $limits.ephemeralStorageLimit -}}
    {{- with include "a4.text" $limit }}{{ $_ := set $annotations (printf "gke-gcsfuse/%s" $key) . }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- if .parallelstore -}}
  {{- range list "volumes=true" "cpu-limit=0" "memory-limit=0" -}}
    {{- $_ := set $annotations (printf "gke-parallelstore/%s" (splitList "=" . | first)) (splitList "=" . | last) -}}
  {{- end -}}
{{- end -}}
{{- $annotations | toJson -}}
{{- end -}}

{{- /* Images of the user's for sidecars that GKE adds, by the container's name. */}}
{{- define "a4.sidecarImages" -}}
{{- $storage := include "a4.storage" . | fromJson -}}
{{- $images := dict -}}
{{- with and $storage.buckets .Values.workload.gcsSidecarImage -}}
  {{- $images = dict "gke-gcsfuse-sidecar" . "gke-gcsfuse-metadata-prefetch" . -}}
{{- end -}}
{{- with and $storage.parallelstore .Values.workload.psSidecarImage -}}
  {{- $_ := set $images "gke-parallelstore-sidecar" . -}}
{{- end -}}
{{- $images | toJson -}}
{{- end -}}

{{- /* Names of volumes, and paths in the workload's container, that the chart needs for itself: {names, paths}. */}}
{{- define "a4.reserved" -}}
{{- $network := include "a4.network" . | fromJson -}}
{{- $names := list "job-secret" "shared-memory" -}}
{{- $paths := list "/" "/etc/a4-agent/secret" "/dev/shm" -}}
{{- /* The agent's private state, and sshd's beside it, are this pod's alone. */}}
{{- $above := "" -}}
{{- range include "a4.runDir" . | trimPrefix "/" | splitList "/" -}}
  {{- $above = printf "%s/%s" $above . -}}
  {{- $paths = append $paths $above -}}
{{- end -}}
{{- if .Values.workload.agentImage -}}
  {{- $names = append $names "a4-agent" -}}
  {{- $paths = append $paths "/opt/a4-agent" -}}
{{- end -}}
{{- if $network.gib -}}
  {{- $names = append $names "gib" -}}
  {{- $paths = concat $paths (list "/usr/local/gib" "/third_party") -}}
{{- end -}}
{{- if $network.tcpx -}}
  {{- $names = concat $names (list "tcpx-socket" "tcpx-libraries" "host-sys" "host-proc-sys" "workload-alive") -}}
  {{- $paths = concat $paths (list "/run/tcpx" "/usr/local/nvidia/lib64" "/run/workload") -}}
{{- end -}}
{{- with (include "a4.task" . | fromJson).script.path -}}
  {{- $names = append $names "script" -}}
  {{- $paths = append $paths . -}}
{{- end -}}
{{- if .Values.workload_config -}}
  {{- $names = append $names "configuration" -}}
  {{- $paths = append $paths (include "a4.configPath" .) -}}
{{- end -}}
{{- dict "names" $names "paths" $paths | toJson -}}
{{- end -}}

{{- /* What is mounted from outside the pod: {volumes, mounts, annotations, nfs, lustre, shared, parallelstore, buckets, results,
     names, problems, notes}; `names` are those of all volumes of the pod. */}}
{{- define "a4.storage" -}}
{{- $volumes := .Values.volumes | default dict -}}
{{- $systems := include "a4.fileSystems" . | fromJson -}}
{{- $buckets := include "a4.buckets" . | fromJson -}}
{{- $problems := concat $systems.problems $buckets.problems | default list -}}
{{- $mounted := concat $systems.mounted $buckets.mounted | default list -}}
{{- with $volumes.ssdMountPath -}}
  {{- $mounted = append $mounted (include "a4.mounted" (dict "from" "volumes.ssdMountPath" "name" "local-ssd" "path" . "source" (dict "hostPath" (dict "path" "/mnt/stateful_partition/kube-ephemeral-ssd" "type" "DirectoryOrCreate"))) | fromJson) -}}
{{- end -}}
{{- $podVolumes := list -}}
{{- $mounts := list -}}
{{- range $mounted -}}
  {{- $podVolumes = append $podVolumes .volume -}}
  {{- $mounts = append $mounts .mount -}}
{{- end -}}
{{- range $at, $mount := (include "a4.whole" ($volumes.extraMounts | default list) | fromJson).is -}}
  {{- if and $mount.name $mount.mountPath -}}
    {{- $mounts = append $mounts $mount -}}
    {{- $mounted = append $mounted (dict "from" (printf "volumes.extraMounts[%d]" $at) "mount" $mount) -}}
  {{- else -}}
    {{- $problems = append $problems (printf "volumes.extraMounts[%d] needs both name, that of a volume, and mountPath" $at) -}}
  {{- end -}}
{{- end -}}

{{- $reserved := include "a4.reserved" . | fromJson -}}
{{- $names := dict -}}
{{- range $reserved.names }}{{ $_ := set $names . "the chart" }}{{ end -}}
{{- range $podVolumes }}{{ $_ := set $names .name "the chart" }}{{ end -}}
{{- range $at, $volume := (include "a4.whole" ($volumes.extra | default list) | fromJson).is -}}
  {{- if not $volume.name -}}
    {{- $problems = append $problems (printf "volumes.extra[%d] has no name: give it one, for volumes.extraMounts" $at) -}}
  {{- else if hasKey $names $volume.name -}}
    {{- $problems = append $problems (printf "volumes.extra[%d] is named %s, as a volume of %s: give it another name" $at $volume.name (get $names $volume.name)) -}}
  {{- end -}}
  {{- $_ := set $names ($volume.name | default "") "volumes.extra" -}}
  {{- $podVolumes = append $podVolumes $volume -}}
{{- end -}}
{{- $places := dict -}}
{{- range $reserved.paths }}{{ $_ := set $places . "the chart's own" }}{{ end -}}
{{- range $mounted -}}
  {{- $path := clean .mount.mountPath -}}
  {{- if or (not (hasPrefix "/" .mount.mountPath)) (contains ":" .mount.mountPath) -}}
    {{- $problems = append $problems (printf "%s has the mountPath %s: write an absolute path without a colon" .from .mount.mountPath) -}}
  {{- end -}}
  {{- if hasKey $places $path -}}
    {{- $problems = append $problems (printf "%s and %s are both to be mounted at %s: give one of them another mountPath" (get $places $path) .from $path) -}}
  {{- end -}}
  {{- if not (hasKey $names .mount.name) -}}
    {{- $problems = append $problems (printf "%s mounts %s, and there is no such volume: add it to volumes.extra" .from .mount.name) -}}
  {{- end -}}
  {{- $_ := set $places $path .from -}}
{{- end -}}
{{- $parallelstore := and (gt (int $systems.claims) 0) (include "a4.true" $volumes.psVolumes | eq "true") -}}
{{- $annotations := include "a4.storageAnnotations" (dict "volumes" $volumes "buckets" $buckets.mounted "parallelstore" $parallelstore) | fromJson -}}
{{- dict "volumes" $podVolumes "mounts" $mounts "annotations" $annotations "nfs" $systems.nfs "lustre" $systems.lustre "shared" $systems.shared "parallelstore" $parallelstore "buckets" (len $buckets.mounted) "results" $buckets.results "names" (keys $names | sortAlpha) "problems" $problems "notes" (concat $systems.notes $buckets.notes | default list) | toJson -}}
{{- end -}}
