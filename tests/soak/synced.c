/* Notes what a program has made durable, for soak_power.py: one line for each fsync and fdatasync that succeeds.
 *
 * Preloaded (LD_PRELOAD); the notes go to the file that PENSTOCK_SOAK_SYNCED names. A line is: device, inode, size,
 * time of the last change in nanoseconds, both as they were before the call (what is written meanwhile is not covered),
 * and the time of the call.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static long long nanoseconds(struct timespec at) { return at.tv_sec * 1000000000LL + at.tv_nsec; }

static int noted(const char *name, int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    const char *path = getenv("PENSTOCK_SOAK_SYNCED");
    struct stat before;
    struct timespec now;
    int known = path != NULL && fstat(fd, &before) == 0;
    clock_gettime(CLOCK_REALTIME, &now); /* file systems use a clock that is up to some milliseconds behind this one */
    int result = real(fd);
    if (result == 0 && known) {
        int notes = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        if (notes >= 0) {
            dprintf(notes, "%llu %llu %lld %lld %lld\n", (unsigned long long)before.st_dev,
                    (unsigned long long)before.st_ino, (long long)before.st_size, nanoseconds(before.st_mtim),
                    nanoseconds(now));
            close(notes);
        }
    }
    return result;
}

int fsync(int fd) { return noted("fsync", fd); }

int fdatasync(int fd) { return noted("fdatasync", fd); }
