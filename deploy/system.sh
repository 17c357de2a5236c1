#!/bin/sh
# The file system of the image without /opt, made of the files of the packages that the image needs: system.sh FOLDER
set -eu

folder=$1
packages="base-files bash busybox libc6 libgcc-s1 libstdc++6 libtinfo6 libncursesw6 libreadline8 zlib1g
  libbz2-1.0 libcrypt1 libexpat1 libffi8 liblzma5 libsqlite3-0 libssl3 libuuid1
  libpython3.11-minimal libpython3.11-stdlib python3-minimal python3.11-minimal
  ca-certificates media-types tini tzdata
  gcc-12-base"  # the licence of libgcc-s1 and libstdc++6
left="/usr/share/doc/[^/]+/([^c]|c[^o])|/usr/share/(man|locale|lintian|bug|menu|info|ca-certificates|base-files|python3|zoneinfo/(posix|right))(/|$)
/gconv/|/usr/bin/tini-static$|/usr/share/bash-completion|/bin/(bashbug|clear_console|rbash|py3.*|catchsegv|tzselect)$
/lib-dynload/(_dbm|nis)\.|/python3.11/(ensurepip|idlelib|lib2to3|pydoc_data|tkinter|turtledemo|unittest/test|config-3|turtle.py)
/usr/(sbin|lib/python3)(/|$)|/sbin/|^/(boot|dev|home|media|mnt|opt|proc|run|srv|sys|var)(/|$)"

mkdir -p "$folder/usr"
cd "$folder"
for each in bin lib lib64 sbin; do
  mkdir "usr/$each"
  ln -s "usr/$each" "$each"
done
# shellcheck disable=SC2086  # a list
{ dpkg --listfiles $packages; find /usr/lib/locale/C.utf8 /usr/lib/python3.11 -path '*C.utf8*' -o -name '*.pyc'; } \
  | grep '^/.' | grep -v -E "$left" | LC_ALL=C sort -u \
  | while IFS= read -r path; do if [ -e "$path" ] || [ -L "$path" ]; then echo "$path"; fi; done \
  | tar --create --directory / --no-recursion --files-from - | tar --extract --keep-directory-symlink

# What the packages' scripts make, and the places that others mount.
mkdir -p app dev etc/ssl/certs proc root run sys tmp usr/lib/ssl usr/local/bin var/lib/dpkg/status.d var/tmp
chmod 0700 root
chmod 1777 tmp var/tmp
cp /etc/ssl/certs/ca-certificates.crt etc/ssl/certs/
ln -s /etc/ssl/certs/ca-certificates.crt usr/lib/ssl/cert.pem  # where OpenSSL looks
printf '%s\n' "root:x:0:0:root:/root:/bin/bash" "penstock:x:10001:10001::/var/lib/penstock:/usr/sbin/nologin" \
  "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin" > etc/passwd
printf '%s\n' "root:x:0:" "penstock:x:10001:" "nogroup:x:65534:" > etc/group
printf '%s\n' "passwd: files" "group: files" "hosts: files dns" > etc/nsswitch.conf
for each in $(busybox --list); do
  [ -e "usr/bin/$each" ] || ln -s busybox "usr/bin/$each"
done
# Scanners of vulnerabilities find the packages here.
for each in $packages; do
  dpkg --status "$each" > "var/lib/dpkg/status.d/$each"
done
