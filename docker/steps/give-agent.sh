#!/bin/sh
# steps/give-agent.sh TARGET: put the agent into a volume, for a container of an image that does not have it.
#
# There the volume is /opt/a4-agent, and bin/with-agent in it starts the command. Python and OpenSSH come along twice:
#
#   own     with this image's C library and all other libraries, for an image whose C library is older
#   image   for the image's C library if it is as new as this one's, with the libraries that the image does not have
#
# mpi4py loads the image's libmpi into that Python, so its C library must be the newer of the two.
set -eu
target=$1
home=/opt/a4-agent
python=$(readlink -f "$home/bin/python")
standard=$("$home/bin/python" -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
loader=$(patchelf --print-interpreter "$python")
programs=''
for program in /usr/bin/ssh /usr/sbin/sshd /usr/lib/openssh/sshd-session /usr/lib/openssh/sshd-auth; do
    [ ! -e "$program" ] || programs="$programs $program"
done

cp -a "$home/." "$target"
mkdir -p "$target/base/bin" "$target/base/lib" "$target/own/libc" "$target/own/lib" "$target/image/lib"
cp -a "$standard" "$target/base/lib"
sed -i "s,^home = .*,home = $home/base/bin," "$target/pyvenv.cfg"

# The libraries of these programs and of Python's modules: but for those in the environment itself, and for MPI's, which
# must be the image's.
modules=$(find "$standard" "$home/lib" -name '*.so' ! -path '*/mpi4py/*')
# shellcheck disable=SC2086  # one word per file
ldd "$python" $programs $modules >"$target/own/needed"
sed -i -n 's,.*=> \(/.*\) (0x.*,\1,p' "$target/own/needed"
while read -r library; do
    case $library in
    */libc.so.6) libc=${library%/*} ;;
    esac
done <"$target/own/needed"
getconf GNU_LIBC_VERSION >"$target/own/version"
cp -L "$loader" "$libc/libc.so.6" "$libc/libm.so.6" "$libc/libmvec.so.1" "$libc/libpthread.so.0" "$libc/libdl.so.2" \
    "$libc/librt.so.1" "$libc/libutil.so.1" "$libc/libresolv.so.2" "$target/own/libc"
while read -r library; do
    name=${library##*/}
    case $library in "$home"/*) continue ;; esac
    [ -e "$target/own/libc/$name" ] || [ -e "$target/own/lib/$name" ] || cp -L "$library" "$target/own/lib"
done <"$target/own/needed"

for variant in own image; do
    root=$target/$variant/root
    mkdir -p "$root/usr/bin" "$root/usr/sbin" "$root/usr/lib/openssh"
    for program in "$python" $programs; do
        copy=$root$program
        [ "$program" != "$python" ] || copy=$target/$variant/python
        cp -L "$program" "$copy"
        libraries=$home/image/lib
        if [ "$variant" = own ]; then
            # All of the C library, and named by the program itself: else a library of the image would bring the image's parts
            # of it. patchelf mixes up its options where one call has several of them.
            patchelf --add-needed libm.so.6 --add-needed libpthread.so.0 --add-needed libdl.so.2 --add-needed librt.so.1 \
                --add-needed libutil.so.1 --add-needed libresolv.so.2 "$copy"
            patchelf --set-interpreter "$home/own/libc/${loader##*/}" "$copy"
            libraries=$home/own/libc:$home/own/lib
        fi
        patchelf --force-rpath --set-rpath "$libraries" "$copy"
    done
    cp -L /usr/bin/tini-static "$root/usr/bin/tini"
done
