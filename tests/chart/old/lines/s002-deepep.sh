helm install -f gke-runtime/values.yaml \
    --set-file workload_launcher=gke-runtime/launchers/torchrun-stratup.sh \
    --set "workload.image"=$WORKLOAD_IMAGE \
    --set "workload.gpus"=16 \
    --set "queue=a4" \
    --set "volumes.gcsMounts[0].bucketName"=${GCS_BUCKET} \
    --set "volumes.nfs.ip"=<filestore-ip> \
    --set "volumes.nfs.region"=<filestore-zone> \
    --set "volumes.nfs.instance"=<filestore-instance> \
    --set "volumes.nfs.volume"=<filestore-share> \
    --set "volumes.nfs.storage"=1024Gi \
    $USER-deepep \
    gke-runtime/jobset
