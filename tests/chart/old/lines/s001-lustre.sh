helm install -f $RECIPE_ROOT/gke-runtime/values.yaml \
    --set-file workload_launcher=$RECIPE_ROOT/examples/pai-megatron-qwen3-next.sh \
    --set "workload.image"=$WORKLOAD_IMAGE \
    --set "volumes.lustre.enabled"=true \
    --set "volumes.lustre.ip"="172.27.48.5" \
    --set "volumes.lustre.filesystem"="lustrefs" \
    --set "volumes.lustre.instanceName"="my-lustre" \
    --set "volumes.lustre.projectId"="$PROJECT_ID" \
    --set "volumes.lustre.location"="us-central1-a" \
    --set "workload.envs[1].value"="false" \
    $USER-qwen3-lustre \
    $RECIPE_ROOT/gke-runtime/jobset
