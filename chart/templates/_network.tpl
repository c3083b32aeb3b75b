{{- /* How pods reach each other and which fabric they get: {host, claim, gib, tcpx, native, profile, sshPort, testPort,
     masterPort, annotations, problems, notes}; `claim` is {deviceClass, count} of the NICs that each pod claims, `gib` the
     installer's image, `native` says whether TCPX's daemon is a native sidecar. */}}
{{- define "a4.network" -}}
{{- $problems := list -}}
{{- $notes := list -}}
{{- $annotations := dict -}}
{{- $network := .Values.network | default dict -}}
{{- $host := ne (include "a4.text" $network.hostNetwork) "false" -}}
{{- $daemon := $network.tcpx | default dict -}}
{{- $tcpx := include "a4.true" $daemon.enabled -}}
{{- $native := ne (include "a4.text" $daemon.nativeSidecar) "false" -}}

{{- $gib := "" -}}
{{- if not $tcpx -}}
  {{- $gib = include "a4.text" $network.gibVersion -}}
  {{- if and $gib (not (contains "/" $gib)) -}}
    {{- $gib = printf "us-docker.pkg.dev/gce-ai-infra/gpudirect-gib/nccl-plugin-gib-diagnostic:%s" $gib -}}
  {{- end -}}
  {{- if and $gib (not (regexMatch "(:[^/:]+|@.+)$" $gib)) }}{{ $gib = printf "%s:latest" $gib }}{{ end -}}
  {{- if hasSuffix ":latest" $gib -}}
    {{- $notes = append $notes "network.gibVersion is latest: two pods of one job can get two versions; name one, such as v1.1.1" -}}
  {{- end -}}
{{- else -}}
  {{- if not $daemon.daemonImage -}}
    {{- $problems = append $problems "network.tcpx.daemonImage is not set: name the daemon's image that belongs to the installer on the nodes" -}}
  {{- end -}}
  {{- if ne (int (include "a4.job" . | fromJson).gpusPerNode) 8 -}}
    {{- $problems = append $problems "GPUDirect-TCPX wants all 8 GPUs of each node: set workload.gpus to 8 or a multiple of 8, and workload.gpusPerNode to 8" -}}
  {{- end -}}
{{- end -}}

{{- $sshPort := coalesce (include "a4.text" $network.sshPort) (include "a4.oldPort" .) "2222" | atoi -}}
{{- $masterPort := include "a4.text" $network.masterPort | default "6002" | atoi -}}
{{- $testPort := add1 $sshPort | int -}}
{{- if has $masterPort (list $sshPort $testPort) -}}
  {{- $problems = append $problems (printf "network.masterPort=%d is taken: %d is the port of sshd, %d that of sshd in helm test; choose another" $masterPort $sshPort $testPort) -}}
{{- end -}}

{{- $names := list -}}
{{- range (include "a4.items" ($network.subnetworks | default list) | fromJson).items -}}
  {{- with include "a4.text" .item }}{{ $names = append $names . }}{{ end -}}
{{- end -}}
{{- if and $host $names -}}
  {{- $notes = append $notes "network.subnetworks are for hostNetwork: false and do nothing here" -}}
{{- end -}}
{{- $dranet := $network.dranet | default dict -}}
{{- $claim := dict -}}
{{- if include "a4.true" $dranet.enabled -}}
  {{- $count := include "a4.text" $dranet.count | default (include "a4.job" . | fromJson).gpusPerNode | toString -}}
  {{- $claim = dict "deviceClass" ($dranet.deviceClass | default "mrdma.google.com") "count" $count -}}
  {{- if or $host $tcpx -}}
    {{- $problems = append $problems "network.dranet puts NICs into networks of the pods: set network.hostNetwork=false, without network.tcpx" -}}
  {{- end -}}
  {{- if $names -}}
    {{- $problems = append $problems "network.dranet and network.subnetworks are two ways to the same NICs: set one of them" -}}
  {{- end -}}
{{- else if not $host -}}
  {{- if not $names -}}
    {{- $names = list "default" "gvnic-1" "rdma-0" "rdma-1" "rdma-2" "rdma-3" "rdma-4" "rdma-5" "rdma-6" "rdma-7" -}}
    {{- if $tcpx }}{{ $names = list "default" "vpc1" "vpc2" "vpc3" "vpc4" }}{{ end -}}
  {{- end -}}
  {{- $interfaces := list -}}
  {{- range $at, $name := $names -}}
    {{- $interfaces = append $interfaces (dict "interfaceName" (printf "eth%d" $at) "network" $name) -}}
  {{- end -}}
  {{- $_ := set $annotations "networking.gke.io/default-interface" "eth0" -}}
  {{- $_ := set $annotations "networking.gke.io/interfaces" ($interfaces | toJson) -}}
  {{- if $tcpx -}}
    {{- $devices := list -}}
    {{- range list "nvidia0" "nvidia1" "nvidia2" "nvidia3" "nvidia4" "nvidia5" "nvidia6" "nvidia7" "nvidiactl" "nvidia-uvm" -}}
      {{- $devices = append $devices (dict "path" (printf "/dev/%s" .)) -}}
    {{- end -}}
    {{- $_ := set $annotations "devices.gke.io/container.tcpx-daemon" ($devices | toYaml) -}}
  {{- end -}}
{{- end -}}
{{- $dns := .Values.dnsPolicy | default "" -}}
{{- if and (eq $dns "None") (not (.Values.dnsConfig | default dict).nameservers) -}}
  {{- $problems = append $problems "dnsPolicy=None without dnsConfig.nameservers: name a server that knows the names of pods, or leave dnsPolicy out" -}}
{{- else if or (eq $dns "Default") (and $host (eq $dns "ClusterFirst")) -}}
  {{- $notes = append $notes (printf "dnsPolicy=%s: pods ask the DNS server of their node, by which they find each other only if it knows the names of the cluster" $dns) -}}
{{- end -}}
{{- dict "host" $host "claim" $claim "gib" $gib "tcpx" $tcpx "native" $native "profile" ($network.profile | default "auto") "sshPort" $sshPort "testPort" $testPort "masterPort" $masterPort "annotations" $annotations "problems" $problems "notes" $notes | toJson -}}
{{- end -}}
