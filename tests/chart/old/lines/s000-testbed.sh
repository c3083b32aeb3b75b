helm install -f $RECIPE_ROOT/gke-runtime/values.yaml \
    --set-file workload_launcher=$REPO_ROOT/training/a4/testbed/gke-runtime/launchers/torchrun-stratup.sh \
    --set "workload.image"=$WORKLOAD_IMAGE \
    --set "volumes.gcsMounts[0].bucketName"=${GCS_BUCKET} \
    $USER-testbed \
    $REPO_ROOT/training/a4/testbed/gke-runtime/jobset
