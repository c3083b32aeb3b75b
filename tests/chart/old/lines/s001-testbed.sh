helm install -f $RECIPE_ROOT/gke-runtime/values.yaml \
    --set-file workload_launcher=$RECIPE_ROOT/gke-runtime/launchers/torchrun-startup.sh \
    --set "workload.image"=$WORKLOAD_IMAGE \
    --set "volumes.gcsMounts[0].bucketName"=${GCS_BUCKET} \
    $USER-testbed \
    $RECIPE_ROOT/gke-runtime/jobset
