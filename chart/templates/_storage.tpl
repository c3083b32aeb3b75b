{{- /* Is one of the chart's own file systems on? {enabled, ip} says so, the first before the second. */}}
{{- define "a4.isOn" -}}
{{- if kindIs "invalid" .enabled -}}
  {{- if .ip }}true{{ end -}}
{{- else -}}
  {{- include "a4.true" .enabled -}}
{{- end -}}
{{- end -}}

{{- /* What is mounted from outside the pod: {volumes, mounts, annotations, nfs, lustre, shared, resultsBucket, problems, notes}; `nfs` and
     `lustre` say whether they are on, `shared` is the directory that all pods share, `resultsBucket` the bucket at /gcs. */}}
{{- define "a4.storage" -}}
{{- $problems := list -}}
{{- $notes := list -}}
{{- $mounted := list -}}
{{- $annotations := dict -}}
{{- $volumes := .Values.volumes | default dict -}}
{{- $name := (include "a4.size" . | fromJson).name -}}
{{- $nfs := $volumes.nfs | default dict -}}
{{- $lustre := $volumes.lustre | default dict -}}
{{- $nfsOn := include "a4.isOn" $nfs -}}
{{- $lustreOn := include "a4.isOn" $lustre -}}
{{- $nfsPath := $nfs.mountPath | default "/mnt" -}}
{{- $lustrePath := $lustre.mountPath | default "/lustre" -}}

{{- $claims := list -}}
{{- range (include "a4.items" ($volumes.pvcMounts | default list) | fromJson).items -}}
  {{- $claim := include "a4.text" .item.claimName -}}
  {{- $own := include "a4.true" .item.own -}}
  {{- if and (has $claim (list "nfs-pvc" (printf "%s-nfs" $name))) (not $own) -}}
    {{- if $nfsOn -}}
      {{- $nfsPath = .item.mountPath | default $nfsPath -}}
    {{- else -}}
      {{- $notes = append $notes (printf "volumes.pvcMounts names %s, but volumes.nfs is off: nothing is mounted there. If it is a claim of your own, add own: true to it" $claim) -}}
    {{- end -}}
  {{- else if and (has $claim (list "lustre-pvc" (printf "%s-lustre-pvc" $name) (printf "%s-lustre" $name))) (not $own) -}}
    {{- if $lustreOn -}}
      {{- $lustrePath = .item.mountPath | default $lustrePath -}}
    {{- else -}}
      {{- $notes = append $notes (printf "volumes.pvcMounts names %s, but volumes.lustre is off: nothing is mounted there. If it is a claim of your own, add own: true to it" $claim) -}}
    {{- end -}}
  {{- else if and $claim .item.mountPath -}}
    {{- $claims = append $claims . -}}
  {{- else -}}
    {{- $problems = append $problems (printf "volumes.pvcMounts[%d]: write both claimName and mountPath" (int .at)) -}}
  {{- end -}}
{{- end -}}

{{- if $nfsOn -}}
  {{- if not $nfs.ip -}}
    {{- $problems = append $problems "volumes.nfs is enabled without an address: set volumes.nfs.ip, as `gcloud filestore instances list` shows it" -}}
  {{- else if not (regexMatch "^[A-Za-z0-9]([A-Za-z0-9.:-]*[A-Za-z0-9])?$" (toString $nfs.ip)) -}}
    {{- $problems = append $problems (printf "volumes.nfs.ip=%s is no address: write that of the server, as `gcloud filestore instances list` shows it" $nfs.ip) -}}
  {{- end -}}
  {{- if not $nfs.volume -}}
    {{- $problems = append $problems "volumes.nfs.volume is not set: write the name of the exported share" -}}
  {{- end -}}
  {{- if and $nfs.instance (not $nfs.region) -}}
    {{- $problems = append $problems "volumes.nfs.instance without volumes.nfs.region: the Filestore CSI driver needs both (the zone, or the region of a regional instance); for plain NFS leave out the instance" -}}
  {{- end -}}
  {{- $mounted = append $mounted (dict "from" "volumes.nfs" "volume" (dict "name" "nfs" "persistentVolumeClaim" (dict "claimName" (printf "%s-nfs" $name))) "mount" (dict "name" "nfs" "mountPath" $nfsPath)) -}}
{{- end -}}
{{- if $lustreOn -}}
  {{- range list "ip" "filesystem" "instanceName" "projectId" "location" -}}
    {{- if not (get $lustre .) -}}
      {{- $problems = append $problems (printf "volumes.lustre is enabled without %s: set volumes.lustre.%s, as `gcloud lustre instances list` shows it" . .) -}}
    {{- end -}}
  {{- end -}}
  {{- $mounted = append $mounted (dict "from" "volumes.lustre" "volume" (dict "name" "lustre" "persistentVolumeClaim" (dict "claimName" (printf "%s-lustre" $name))) "mount" (dict "name" "lustre" "mountPath" $lustrePath)) -}}
{{- end -}}
{{- $ownPath := "" -}}
{{- range $claims -}}
  {{- $volume := printf "pvc-%d" (int .at) -}}
  {{- $mount := dict "name" $volume "mountPath" .item.mountPath -}}
  {{- if include "a4.true" .item.readOnly -}}
    {{- $_ := set $mount "readOnly" true -}}
  {{- else if not $ownPath -}}
    {{- $ownPath = .item.mountPath -}}
  {{- end -}}
  {{- $mounted = append $mounted (dict "from" (printf "volumes.pvcMounts[%d]" (int .at)) "volume" (dict "name" $volume "persistentVolumeClaim" (dict "claimName" (include "a4.text" .item.claimName))) "mount" $mount) -}}
{{- end -}}
{{- if and $claims (include "a4.true" $volumes.psVolumes) -}}
  {{- $annotations = merge $annotations (dict "gke-parallelstore/volumes" "true" "gke-parallelstore/cpu-limit" "0" "gke-parallelstore/memory-limit" "0") -}}
{{- end -}}

{{- $buckets := list -}}
{{- $resultsBucket := "" -}}
{{- if ne (include "a4.text" $volumes.gcsVolumes) "false" -}}
  {{- range (include "a4.items" ($volumes.gcsMounts | default list) | fromJson).items -}}
    {{- if include "a4.text" .item.bucketName -}}
      {{- $buckets = append $buckets . -}}
    {{- else -}}
      {{- $notes = append $notes (printf "volumes.gcsMounts[%d] has no bucketName: no bucket is mounted for it" (int .at)) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- range $buckets -}}
  {{- $bucket := include "a4.text" .item.bucketName -}}
  {{- $path := .item.mountPath | default (ternary "/gcs" "" (eq (int .at) 0)) -}}
  {{- if not $path -}}
    {{- $problems = append $problems (printf "volumes.gcsMounts[%d] has no mountPath: say where bucket %s belongs" (int .at) $bucket) -}}
  {{- else if hasPrefix "gs://" $bucket -}}
    {{- $problems = append $problems (printf "volumes.gcsMounts[%d].bucketName=%s: write the name without gs://" (int .at) $bucket) -}}
  {{- else -}}
    {{- /* Buckets have dots, underscores and long names; volumes must not. */}}
    {{- $volume := printf "gcs-%d" (int .at) -}}
    {{- if eq (trimSuffix "/" $path) "/gcs" }}{{ $resultsBucket = $bucket }}{{ end -}}
    {{- $attributes := dict "bucketName" $bucket "mountOptions" (.item.mountOptions | default "implicit-dirs") -}}
    {{- $mounted = append $mounted (dict "from" (printf "volumes.gcsMounts[%d]" (int .at)) "volume" (dict "name" $volume "csi" (dict "driver" "gcsfuse.csi.storage.gke.io" "volumeAttributes" $attributes)) "mount" (dict "name" $volume "mountPath" $path)) -}}
  {{- end -}}
{{- end -}}
{{- if $buckets -}}
  {{- $limits := $volumes.gcsSidecar | default dict -}}
  {{- $_ := set $annotations "gke-gcsfuse/volumes" "true" -}}
  {{- range $key, $limit := dict "cpu-limit" $limits.cpuLimit "memory-limit" $limits.memoryLimit "ephemeral-storage-limit" $limits.ephemeralStorageLimit -}}
    {{- with include "a4.text" $limit -}}
      {{- $_ := set $annotations (printf "gke-gcsfuse/%s" $key) . -}}
    {{- end -}}
  {{- end -}}
{{- end -}}

{{- with $volumes.ssdMountPath -}}
  {{- $mounted = append $mounted (dict "from" "volumes.ssdMountPath" "volume" (dict "name" "local-ssd" "hostPath" (dict "path" "/mnt/stateful_partition/kube-ephemeral-ssd")) "mount" (dict "name" "local-ssd" "mountPath" .)) -}}
{{- end -}}

{{- $podVolumes := list -}}
{{- $mounts := list -}}
{{- $places := dict -}}
{{- range $mounted -}}
  {{- $podVolumes = append $podVolumes .volume -}}
  {{- $mounts = append $mounts .mount -}}
  {{- $path := trimSuffix "/" .mount.mountPath -}}
  {{- if hasKey $places $path -}}
    {{- $problems = append $problems (printf "%s and %s are both to be mounted at %s: give one of them another mountPath" (get $places $path) .from $path) -}}
  {{- end -}}
  {{- $_ := set $places $path .from -}}
{{- end -}}
{{- $podVolumes = concat $podVolumes (include "a4.whole" ($volumes.extra | default list) | fromJson).is -}}
{{- $mounts = concat $mounts (include "a4.whole" ($volumes.extraMounts | default list) | fromJson).is -}}
{{- $shared := coalesce (ternary $lustrePath "" (not (empty $lustreOn))) (ternary $nfsPath "" (not (empty $nfsOn))) $ownPath | default "" -}}
{{- dict "volumes" $podVolumes "mounts" $mounts "annotations" $annotations "nfs" $nfsOn "lustre" $lustreOn "shared" $shared "resultsBucket" $resultsBucket "problems" $problems "notes" $notes | toJson -}}
{{- end -}}
