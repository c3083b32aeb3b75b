{{- /* PAI_WORKSPACE_ROOT is on what all pods share: {value, note}. The old values files preset /mnt and /mnt/lustrefs, whatever
     was mounted: where nothing is, they give way. */}}
{{- define "a4.workspace" -}}
{{- $storage := include "a4.storage" . | fromJson -}}
{{- $given := get (include "a4.ownEnv" . | fromJson).values "PAI_WORKSPACE_ROOT" -}}
{{- $there := false -}}
{{- range $storage.mounts -}}
  {{- $path := trimSuffix "/" .mountPath -}}
  {{- if or (eq $given $path) (hasPrefix (printf "%s/" $path) $given) }}{{ $there = true }}{{ end -}}
{{- end -}}
{{- if not $given -}}
  {{- dict "value" $storage.shared "note" "" | toJson -}}
{{- else if or $there (not (has (trimSuffix "/" $given) (list "/mnt" "/mnt/lustrefs"))) -}}
  {{- dict "value" $given "note" "" | toJson -}}
{{- else -}}
  {{- $now := printf "it is %s" $storage.shared -}}
  {{- if not $storage.shared }}{{ $now = "it is left out" }}{{ end -}}
  {{- dict "value" $storage.shared "note" (printf "PAI_WORKSPACE_ROOT was %s, where nothing is mounted: %s" $given $now) | toJson -}}
{{- end -}}
{{- end -}}

{{- /* Variables that pods of a cluster know each other by. Takes {root, prefix, domain, nodes, gpus, gpusPerNode}. */}}
{{- define "a4.clusterEnv" -}}
{{- $first := printf "%s0-0.%s" .prefix .domain -}}
- {name: JOB_ORCHESTRATOR, value: gke}
- name: JOB_COMPLETION_INDEX
  valueFrom: {fieldRef: {fieldPath: "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
- {name: HOSTNAME_PREFIX, value: {{ .prefix }}}
- {name: DOMAIN_NAME, value: {{ .domain }}}
- {name: RANK_0_FQDN, value: {{ $first }}}
- {name: MASTER_ADDR, value: {{ $first }}}
- {name: WORLD_SIZE, value: {{ int .gpus | quote }}}
- {name: NNODES, value: {{ int .nodes | quote }}}
- {name: GPUS_PER_NODE, value: {{ int .gpusPerNode | quote }}}
{{- end -}}

{{- define "a4.fromSecret" -}}
- name: {{ .name | quote }}
  valueFrom: {secretKeyRef: {name: "{{ .job }}-env", key: {{ .name | quote }}}}
{{- end -}}

{{- /* All variables of the workload's container, each once. */}}
{{- define "a4.env" -}}
{{- $size := include "a4.size" . | fromJson -}}
{{- $task := include "a4.task" . | fromJson -}}
{{- $own := include "a4.ownEnv" . | fromJson -}}
{{- $network := .Values.network | default dict -}}
{{- $workload := .Values.workload | default dict -}}
{{- $name := $size.name -}}
{{- $secret := include "a4.secretEnv" . | fromJson -}}
{{- $taken := dict "SLEEP_INFINITY" true "PAI_WORKSPACE_ROOT" true -}}
- {name: JOB_ID, value: {{ $name | quote }}}
- {name: JOB_IDENTIFIER, value: {{ $name | quote }}}
- name: JOB_UUID
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['jobset.sigs.k8s.io/jobset-uid']"}}
{{ include "a4.clusterEnv" (dict "prefix" (printf "%s-workload-" $name) "domain" (include "a4.domain" .) "nodes" $size.nodes "gpus" $size.gpus "gpusPerNode" $size.gpusPerNode) }}
- {name: MASTER_PORT, value: {{ (include "a4.network" . | fromJson).masterPort | quote }}}
- name: A4_JOBSET_UID
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['jobset.sigs.k8s.io/jobset-uid']"}}
- name: A4_RESTART_ATTEMPT
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"}}
- name: A4_JOB_RESTART_ATTEMPT
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['jobset.sigs.k8s.io/job-restart-attempt']"}}
- {name: A4_GRACE_SECONDS, value: {{ include "a4.grace" . | quote }}}
- {name: A4_SSH_PORT, value: {{ include "a4.sshPort" . | quote }}}
{{- with $workload.run }}
- {name: A4_WORKLOAD, value: {{ . | quote }}}
{{- end }}
{{- if not (has ($network.profile | default "auto") (list "auto")) }}
- {name: A4_PROFILE, value: {{ $network.profile | quote }}}
{{- end }}
- {name: SLEEP_INFINITY, value: {{ $task.sleep | quote }}}
{{- if (include "a4.network" . | fromJson).gib }}
- {name: NCCL_PLUGIN_PATH, value: /usr/local/gib/lib64}
- {name: NCCL_INIT_SCRIPT, value: /usr/local/gib/scripts/set_nccl_env.sh}
{{- $_ := set $taken "NCCL_PLUGIN_PATH" true -}}
{{- $_ := set $taken "NCCL_INIT_SCRIPT" true -}}
{{- end }}
{{- $workspace := (include "a4.workspace" . | fromJson).value }}
{{- with $workspace }}
- {name: PAI_WORKSPACE_ROOT, value: {{ . | quote }}}
{{- end }}
{{- $names := list }}
{{- range $own.entries }}
{{- $givenWay := and (eq .name "PAI_WORKSPACE_ROOT") (ne $workspace (.value | default "")) }}
{{- if not (or $givenWay (hasPrefix "A4_" .name) (has .name (list "SLEEP_INFINITY" "SSH_PUBLIC_KEY"))) }}
{{- $names = append $names .name }}
{{- end }}
{{- end }}
{{- with $names }}
- {name: A4_USER_ENV, value: {{ join " " . | quote }}}
{{- end }}
{{- range $key, $value := $workload.defaultEnv | default dict }}
{{- if or (kindIs "invalid" $value) (hasKey $own.values $key) (hasKey $taken $key) }}
{{- else if hasKey $secret $key }}
{{ include "a4.fromSecret" (dict "job" $name "name" $key) }}
{{- else }}
- {name: {{ $key | quote }}, value: {{ include "a4.text" $value | quote }}}
{{- end }}
{{- end }}
{{- range $own.entries }}
{{- if has .name (list "SLEEP_INFINITY" "PAI_WORKSPACE_ROOT") }}
{{- else if .valueFrom }}
- name: {{ .name | quote }}
  valueFrom: {{- toYaml .valueFrom | nindent 4 }}
{{- else if hasKey $secret .name }}
{{ include "a4.fromSecret" (dict "job" $name "name" .name) }}
{{- else }}
- {name: {{ .name | quote }}, value: {{ .value | quote }}}
{{- end }}
{{- end }}
{{- end -}}
