{{- /* Names of the entries of the old charts' lists, which people set by number. */}}
{{- define "a4.oldEnvNames" -}}
SSH_PUBLIC_KEY SLEEP_INFINITY HF_TOKEN NVTE_FWD_LAYERNORM_SM_MARGIN NVTE_BWD_LAYERNORM_SM_MARGIN GLOO_SOCKET_IFNAME TORCH_DISTRIBUTED_TRACING PAI_WORKSPACE_ROOT
{{- end -}}
{{- define "a4.oldNcclNames" -}}
NCCL_DEBUG NVTE_UB_SOCKET_IFNAME
{{- end -}}

{{- /* What the old charts' values files have in their lists: {NAME: [values]}. */}}
{{- define "a4.presets" -}}
SLEEP_INFINITY: ["true"]
NVTE_FWD_LAYERNORM_SM_MARGIN: ["8"]
NVTE_BWD_LAYERNORM_SM_MARGIN: ["8"]
GLOO_SOCKET_IFNAME: [eth0]
TORCH_DISTRIBUTED_TRACING: [ALL]
PAI_WORKSPACE_ROOT: [/mnt, /mnt/lustrefs]
NEMO_CONFIG_PATH: [/workload/configs]
NEMO_CONFIG_NAME: [nemo-config.yaml]
EXPERIMENT_NAME: [nemo-experiments]
EXPERIMENT_ROOT_DIR: [/job-logs]
TOKENIZER_PATH: [/artifacts/third-party/tokenizers/gpt2]
NEMO_LAUNCH_SCRIPT: [/opt/NeMo/examples/nlp/language_modeling/megatron_gpt_pretraining.py]
SKIP_CLONE_REPO: ["false"]
SKIP_DOWNLOAD_DATA: ["false"]
SKIP_CHECKPOINT_CONVERSION: ["false"]
SKIP_TRAINING: ["false"]
NCCL_DEBUG: [WARN, VERSION]
NVTE_UB_SOCKET_IFNAME: [eth1]
{{- end -}}

{{- /* Variables that are the chart's to set, and what to use in place of setting them: {NAME: hint}. */}}
{{- define "a4.contractNames" -}}
NNODES: workload.gpus
GPUS_PER_NODE: workload.gpus
WORLD_SIZE: workload.gpus
JOB_COMPLETION_INDEX: nothing, it follows from the pod
POD_NAME: nothing, it follows from the pod
NODE_NAME: nothing, it follows from the pod
JOB_ID: the release's name
JOB_IDENTIFIER: the release's name
JOB_UUID: nothing, it follows from the Job
JOB_ORCHESTRATOR: nothing, it is gke
HOSTNAME_PREFIX: the release's name
DOMAIN_NAME: the release's name and namespace, and network.clusterDomain
RANK_0_FQDN: the release's name
MASTER_ADDR: the release's name
MASTER_PORT: network.masterPort
A4_METRICS_PORT: metrics.port
A4_JOBSET_UID: nothing, it follows from the JobSet
A4_RESTART_ATTEMPT: nothing, it follows from the JobSet
A4_JOB_RESTART_ATTEMPT: nothing, it follows from the JobSet
A4_GRACE_SECONDS: workload.terminationGracePeriodSeconds
A4_GATE: workload.gate
A4_IMAGE: workload.image
A4_PROFILE: network.profile
A4_ACCELERATOR: accelerator
A4_RUN_NAME: workload.runName
A4_SECRET_ENV: nothing, every variable from a Secret is in it
A4_SECRET_FILE: secret.name
A4_SSH_PORT: network.sshPort
A4_USER_ENV: nothing, every variable in workload.env and workload.envs is in it
A4_WORKLOAD: workload.run
{{- end -}}

{{- /* Is a variable secret by its name? As agent/decide/secret_variables.py has it. */}}
{{- define "a4.isSecret" -}}
{{- $name := regexReplaceAll "([a-z0-9])([A-Z])" . "${1}_${2}" -}}
{{- $name = printf "_%s" (regexReplaceAll "[^A-Za-z0-9]+" $name "_" | trimAll "_" | upper) -}}
{{- $name = regexReplaceAll (printf "(_?[0-9]+|_(%s)|_)+$" (include "a4.saysNothing" .)) $name "" -}}
{{- if and (ne $name "_PWD") (regexMatch (printf "(%s)$" (include "a4.secretEnds" .)) $name) -}}
{{- if not (regexMatch (printf "(%s)$" (include "a4.plainEnds" .)) $name) }}true{{ end -}}
{{- end -}}
{{- end -}}

{{- /* The entries of one list of {name, value or valueFrom}: {entries, problems}. Takes {list, key, names}: `names` are those of
     entries that have none. */}}
{{- define "a4.listedEnv" -}}
{{- $problems := list -}}
{{- $entries := list -}}
{{- $key := .key -}}
{{- $names := .names -}}
{{- $presets := include "a4.presets" . | fromYaml -}}
{{- range (include "a4.items" (.list | default list) | fromJson).items -}}
  {{- $at := int .at -}}
  {{- $name := .item.name | default "" -}}
  {{- if and (not $name) (lt $at (len $names)) -}}
    {{- $name = index $names $at -}}
  {{- end -}}
  {{- if not $name -}}
    {{- $problems = append $problems (printf "%s[%d] has no name: set %s[%d].name too, or better workload.env.NAME=value" $key $at $key $at) -}}
  {{- else if and .item.valueFrom (include "a4.text" .item.value) -}}
    {{- $problems = append $problems (printf "%s[%d], %s, has a value and a valueFrom: drop one of them" $key $at $name) -}}
  {{- else if .item.valueFrom -}}
    {{- $entries = append $entries (dict "from" $key "name" $name "valueFrom" .item.valueFrom) -}}
  {{- else -}}
    {{- $value := regexReplaceAll "^<YOUR_[A-Z_]+>$" (include "a4.text" .item.value) "" -}}
    {{- $entries = append $entries (dict "from" $key "name" $name "value" $value "preset" (has $value (get $presets $name | default list))) -}}
  {{- end -}}
{{- end -}}
{{- dict "entries" $entries "problems" $problems | toJson -}}
{{- end -}}

{{- /* How much an entry says: 0 nothing, 1 what an old values file presets, 2 what somebody has written. */}}
{{- define "a4.saysMuch" -}}
{{- if .valueFrom }}2{{ else if not (trim (.value | default "")) }}0{{ else if .preset }}1{{ else }}2{{ end -}}
{{- end -}}

{{- /* The user's entries, each variable once, by name, with `own`: {own, problems}. In one list what comes later counts. An empty
     entry and a preset of an old values file give way; two places that say different things are refused. */}}
{{- define "a4.ownEnv" -}}
{{- $own := dict -}}
{{- $problems := list -}}
{{- range . -}}
  {{- $before := get $own .name | default dict -}}
  {{- $more := sub (include "a4.saysMuch" . | int) (include "a4.saysMuch" $before | int) -}}
  {{- $says := omit . "from" "preset" | toJson -}}
  {{- if and $before (ne (toString $before.from) .from) (eq $more 0) (eq (include "a4.saysMuch" .) "2") (ne $says (omit $before "from" "preset" "own" | toJson)) -}}
    {{- $problems = append $problems (printf "%s is in %s and in %s, with different values: drop one of them" .name $before.from .from) -}}
  {{- end -}}
  {{- if ge $more 0 }}{{ $_ := set $own .name (merge (dict "own" true) .) }}{{ end -}}
{{- end -}}
{{- dict "own" $own "problems" $problems | toJson -}}
{{- end -}}

{{- /* Everything that the values say of variables, each once; the user's come before workload.defaultEnv and what an
     old example needs:
     {entries: [{name, value or valueFrom, own}], values: {name: value}, problems}; `own` are the user's, all but defaultEnv.
     Made once and kept beside the values: every manifest asks for it. */}}
{{- define "a4.variables" -}}
{{- if not (hasKey .Values "a4Variables") }}{{ $_ := set .Values "a4Variables" (include "a4.readVariables" .) }}{{ end -}}
{{- .Values.a4Variables -}}
{{- end -}}
{{- define "a4.readVariables" -}}
{{- $problems := list -}}
{{- $workload := .Values.workload | default dict -}}
{{- $network := .Values.network | default dict -}}
{{- $default := list -}}
{{- range $name, $value := $workload.defaultEnv | default dict -}}
  {{- if not (kindIs "invalid" $value) -}}
    {{- $default = append $default (dict "name" $name "value" (include "a4.text" $value)) -}}
  {{- end -}}
{{- end -}}
{{- $own := list -}}
{{- range $name, $value := $workload.env | default dict -}}
  {{- if not (kindIs "invalid" $value) -}}
    {{- $own = append $own (dict "from" "workload.env" "name" $name "value" (include "a4.text" $value)) -}}
  {{- end -}}
{{- end -}}
{{- $nccl := include "a4.listedEnv" (dict "list" $network.ncclSettings "key" "network.ncclSettings" "names" (splitList " " (include "a4.oldNcclNames" .))) | fromJson -}}
{{- $own = concat $own $nccl.entries | default list -}}
{{- range $name, $from := $workload.envFromSecrets | default dict -}}
  {{- if $from -}}
    {{- if not (and $from.secret (include "a4.text" $from.key)) -}}
      {{- $problems = append $problems (printf "workload.envFromSecrets.%s needs both secret, the name of a Secret, and key, the key in it" $name) -}}
    {{- end -}}
    {{- $own = append $own (dict "from" "workload.envFromSecrets" "name" $name "valueFrom" (dict "secretKeyRef" (dict "name" $from.secret "key" (include "a4.text" $from.key)))) -}}
  {{- end -}}
{{- end -}}
{{- $listed := include "a4.listedEnv" (dict "list" $workload.envs "key" "workload.envs" "names" (splitList " " (include "a4.oldEnvNames" .))) | fromJson -}}
{{- $said := include "a4.ownEnv" (concat $own $listed.entries | default list) | fromJson -}}
{{- $problems = concat $problems $nccl.problems $listed.problems $said.problems | default list -}}

{{- $contract := include "a4.contractNames" . | fromYaml -}}
{{- $last := dict -}}
{{- range $default }}{{ $_ := set $last .name . }}{{ end -}}
{{- range $said.own }}{{ $_ := set $last .name . }}{{ end -}}
{{- $example := (include "a4.scripts" . | fromJson).example -}}
{{- range $name, $value := include "a4.exampleVariables" (dict "example" $example "mode" (dig "TRAINING_MODE" "value" "" $last)) | fromJson -}}
  {{- if eq (include "a4.saysMuch" (get $last $name | default dict)) "0" -}}
    {{- $_ := set $last $name (dict "name" $name "value" $value) -}}
  {{- end -}}
{{- end -}}
{{- range $name, $entry := $last -}}
  {{- if hasKey $contract $name -}}
    {{- $problems = append $problems (printf "%s is the chart's to set: use %s" $name (get $contract $name)) -}}
  {{- end -}}
  {{- if and $entry.valueFrom (has $name (list "SLEEP_INFINITY" "PAI_WORKSPACE_ROOT" "RUN_DEEPEP_TEST" "A4_RUN_DIR")) -}}
    {{- $problems = append $problems (printf "%s has a valueFrom: write its value, which the chart must know" $name) -}}
  {{- end -}}
{{- end -}}
{{- with get $last "A4_LIVES" -}}
  {{- $lives := include "a4.lives" $ -}}
  {{- $said := trim (.value | default "") | default "0" -}}
  {{- if .valueFrom -}}
    {{- $problems = append $problems "A4_LIVES has a valueFrom: set workload.lives in its place" -}}
  {{- else if and (regexMatch "^[0-9]{1,9}$" $said) (ne (atoi $said | toString) $lives) -}}
    {{- $problems = append $problems (printf "A4_LIVES=%s beside workload.lives=%s: set workload.lives, by which lost pods are replaced, and drop A4_LIVES" $said $lives) -}}
  {{- end -}}
{{- end -}}
{{- /* The old values files have these without a value, or with a placeholder. */}}
{{- range list "SSH_PUBLIC_KEY" "SLEEP_INFINITY" "HF_TOKEN" "PAI_WORKSPACE_ROOT" -}}
  {{- $entry := get $last . | default dict -}}
  {{- if not (or $entry.valueFrom (trim ($entry.value | default ""))) -}}
    {{- $_ := unset $last . -}}
  {{- end -}}
{{- end -}}
{{- $entries := list -}}
{{- $values := dict -}}
{{- range $name := keys $last | sortAlpha -}}
  {{- $entries = append $entries (get $last $name) -}}
  {{- $_ := set $values $name (get $last $name | dig "value" "") -}}
{{- end -}}
{{- with get $values "A4_RUN_DIR" -}}
  {{- if not (regexMatch "^(/[A-Za-z0-9._-]+)+$" .) -}}
    {{- $problems = append $problems (printf "A4_RUN_DIR=%s: write an absolute path of letters, digits, '.', '_' and '-'" .) -}}
  {{- end -}}
{{- end -}}
{{- dict "entries" $entries "values" $values "problems" (uniq $problems) | toJson -}}
{{- end -}}

{{- /* Is the value of this entry kept in the Secret? A path is no secret: what it leads to is. */}}
{{- define "a4.keptSecret" -}}
{{- $path := "^/[a-z0-9._-]{2,}(/([a-z0-9._-]+|[A-Za-z._-]+))+/?$" -}}
{{- if and .value (not (regexMatch $path (toString .value))) }}{{ include "a4.isSecret" .name }}{{ end -}}
{{- end -}}

{{- /* What the Secret has: {NAME: value in base64}. */}}
{{- define "a4.secretData" -}}
{{- $data := dict -}}
{{- range (include "a4.variables" . | fromJson).entries -}}
  {{- if include "a4.keptSecret" . }}{{ $_ := set $data .name (.value | b64enc) }}{{ end -}}
{{- end -}}
{{- toJson $data -}}
{{- end -}}
