#include "convert/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codec/bytes.h"

/* ------------------------------------------------------------------------------------------ listing */

/* What cannot be stored. The first in the order of the paths is named, whatever order they are found in. */
typedef struct misfits {
    uint64_t count;
    char *path;
    const char *what;
} misfits;

typedef struct listing {
    tp_tree *tree;
    misfits misfits;
    tp_progress *progress;
    tp_error *error;
} listing;

static tp_status about(const listing *l, const char *path, tp_status status, const char *what)
{
    char shown[TP_SHOWN_PATH];
    return tp_error_set(l->error, status, "%s: %s", tp_text_join(l->tree->name, path, shown), what);
}

static tp_status system_about(const listing *l, const char *path, int errnum, const char *what)
{
    char shown[TP_SHOWN_PATH];
    return tp_error_system(l->error, errnum, "%s: %s", tp_text_join(l->tree->name, path, shown), what);
}

static tp_status add_misfit(listing *l, const char *path, const char *what)
{
    misfits *m = &l->misfits;
    m->count++;
    if (m->path && strcmp(m->path, path) < 0) return TP_OK;
    free(m->path);
    m->path = strdup(path);
    m->what = what;
    return m->path ? TP_OK : tp_error_memory(l->error);
}

static const char *kind_of(const struct stat *s)
{
    return S_ISFIFO(s->st_mode)   ? "is a FIFO"
           : S_ISSOCK(s->st_mode) ? "is a socket"
           : S_ISCHR(s->st_mode)  ? "is a device"
           : S_ISBLK(s->st_mode)  ? "is a device"
                                  : "is neither file nor folder";
}

/* The array with room for `needed` elements: itself, or moved; NULL if there is no memory. */
static void *grown(void *array, size_t *capacity, size_t needed, size_t element)
{
    size_t wanted = *capacity ? *capacity : 64;
    while (wanted < needed) wanted *= 2;
    if (wanted == *capacity) return array;
    void *larger = realloc(array, wanted * element);
    if (larger) *capacity = wanted;
    return larger;
}

static tp_status add_entry(listing *l, const char *path, const struct stat *s)
{
    tp_tree *tree = l->tree;
    size_t size = strlen(path) + 1;
    char *paths = grown(tree->paths, &tree->path_capacity, tree->path_size + size, 1);
    if (!paths) return tp_error_memory(l->error);
    tree->paths = paths;
    tp_tree_entry *entries = grown(tree->entries, &tree->capacity, tree->count + 1, sizeof *entries);
    if (!entries) return tp_error_memory(l->error);
    tree->entries = entries;
    memcpy(tree->paths + tree->path_size, path, size);
    tp_tree_entry *e = &tree->entries[tree->count++];
    *e = (tp_tree_entry){.path = tree->path_size,
                         .device = s->st_dev,
                         .inode = s->st_ino,
                         .mode = (uint16_t)(s->st_mode & 0777),
                         .folder = S_ISDIR(s->st_mode)};
    tree->path_size += size;
    if (e->folder) return TP_OK;
    e->size = (uint64_t)s->st_size;
    e->seconds = s->st_mtim.tv_sec;
    e->nanoseconds = (uint32_t)s->st_mtim.tv_nsec;
    tree->files++;
    if (!tp_add(tree->size, e->size, &tree->size))
        return about(l, path, TP_LIMIT, "is too large to be stored together with the others");
    return TP_OK;
}

/* Something called `name` in the open folder fd; `path` is its path from the root. */
static tp_status look_at(listing *l, int fd, const char *name, const char *path)
{
    struct stat s;
    if (fstatat(fd, name, &s, AT_SYMLINK_NOFOLLOW) != 0)
        return system_about(l, path, errno, "cannot read its properties");
    if (!S_ISLNK(s.st_mode)) {
        if (!S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode)) return add_misfit(l, path, kind_of(&s));
        return add_entry(l, path, &s);
    }
    if (fstatat(fd, name, &s, 0) != 0) {
        if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)
            return add_misfit(l, path, "is a link that leads nowhere");
        return system_about(l, path, errno, "cannot read the properties of what it links to");
    }
    if (S_ISDIR(s.st_mode)) return add_misfit(l, path, "is a link to a folder");
    if (!S_ISREG(s.st_mode)) return add_misfit(l, path, kind_of(&s));
    return add_entry(l, path, &s);
}

/* The path of `name` in the folder `folder` ("" for the root) in `path`, of TP_MAX_PATH + 1 bytes. */
static tp_status join(const listing *l, const char *folder, const char *name, char *path)
{
    size_t size = strlen(folder), name_size = strlen(name), slash = size > 0;
    if (name_size > TP_MAX_COMPONENT || size + slash + name_size > TP_MAX_PATH) {
        return about(l, folder, TP_LIMIT,
                     name_size > TP_MAX_COMPONENT ? "holds a name of more than 255 bytes"
                                                  : "holds a path of more than 4095 bytes");
    }
    memcpy(path, folder, size);
    if (slash) path[size] = '/';
    memcpy(path + size + slash, name, name_size + 1);
    return TP_OK;
}

/* All that is in the folder at `path`, "" for the root. */
static tp_status list_folder(listing *l, const char *path)
{
    char joined[TP_MAX_PATH + 1];
    int fd;
    do fd = openat(l->tree->fd, *path ? path : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return system_about(l, path, errno, "cannot open");
    DIR *d = fdopendir(fd);
    if (!d) {
        close(fd);
        return tp_error_memory(l->error);
    }
    tp_status status = TP_OK;
    while (status == TP_OK) {
        errno = 0;
        const struct dirent *e = readdir(d);
        if (!e && errno != 0) status = system_about(l, path, errno, "cannot read");
        if (!e) break;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        status = join(l, path, e->d_name, joined);
        if (status == TP_OK) status = look_at(l, fd, e->d_name, joined);
        if (status == TP_OK) status = tp_progress_tick(l->progress, false, l->error);
    }
    closedir(d);
    return status;
}

static int compare_entries(const void *a, const void *b, void *context)
{
    const tp_tree *tree = context;
    return strcmp(tree->paths + ((const tp_tree_entry *)a)->path,
                  tree->paths + ((const tp_tree_entry *)b)->path);
}

/* Lists what is below tree->fd. Folders wait in the list itself: neither stack nor descriptors grow with
 * depth. */
static tp_status list(tp_tree *tree, tp_progress *progress, tp_error *error)
{
    listing l = {.tree = tree, .progress = progress, .error = error};
    char path[TP_MAX_PATH + 1] = "";
    tp_status status = list_folder(&l, path);
    for (size_t i = 0; i < tree->count && status == TP_OK; i++) {
        if (!tree->entries[i].folder) continue;
        strcpy(path, tp_tree_path(tree, i)); /* the paths move while the list grows */
        status = list_folder(&l, path);
    }
    if (status == TP_OK && l.misfits.count > 0) {
        char shown[TP_SHOWN_PATH], others[64] = "";
        if (l.misfits.count > 1)
            snprintf(others, sizeof others, "; there are %llu such entries",
                     (unsigned long long)l.misfits.count);
        status = tp_error_set(error, TP_IO, "%s: %s, which cannot be stored%s",
                              tp_text_join(tree->name, l.misfits.path, shown), l.misfits.what, others);
    }
    free(l.misfits.path);
    if (status == TP_OK && tree->count > 1)
        qsort_r(tree->entries, tree->count, sizeof *tree->entries, compare_entries, tree);
    return status;
}

tp_status tp_tree_open(tp_tree *tree, const char *path, int fd, tp_progress *progress, tp_error *error)
{
    memset(tree, 0, sizeof *tree);
    tree->fd = fd;
    size_t size = strlen(path);
    while (size > 1 && path[size - 1] == '/') size--;
    tree->name = strndup(path, size);
    if (!tree->name) return tp_error_memory(error);
    tp_status status = TP_OK;
    if (fd < 0) {
        tree->owned = true;
        do tree->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        while (tree->fd < 0 && errno == EINTR);
        char shown[TP_SHOWN_PATH];
        if (tree->fd < 0)
            status = tp_error_system(error, errno, "%s: cannot open", tp_text_path(tree->name, shown));
    }
    if (status == TP_OK) status = list(tree, progress, error);
    if (status != TP_OK) tp_tree_close(tree);
    return status;
}

void tp_tree_close(tp_tree *tree)
{
    if (tree->owned && tree->fd >= 0) close(tree->fd);
    free(tree->name);
    free(tree->entries);
    free(tree->paths);
    memset(tree, 0, sizeof *tree);
    tree->fd = -1;
}

/* ----------------------------------------------------------------------------------------- changes */

static tp_status changed(const tp_tree *tree, const char *path, const char *what, tp_error *error)
{
    char shown[TP_SHOWN_PATH];
    return tp_error_set(error, TP_IO, "%s: %s while the folder was read",
                        tp_text_join(tree->name, path, shown), what);
}

static bool same_entry(const tp_tree_entry *a, const tp_tree_entry *b)
{
    /* Not the inode's number: on some network file systems it changes by itself. */
    return a->folder == b->folder && a->mode == b->mode && a->size == b->size && a->seconds == b->seconds &&
           a->nanoseconds == b->nanoseconds;
}

tp_status tp_tree_unchanged(const tp_tree *tree, tp_progress *progress, tp_error *error)
{
    tp_tree now = {.fd = tree->fd, .name = tree->name};
    tp_status status = list(&now, progress, error);
    for (size_t i = 0; status == TP_OK && (i < tree->count || i < now.count); i++) {
        int order = i == now.count     ? -1
                    : i == tree->count ? 1
                                       : strcmp(tp_tree_path(tree, i), tp_tree_path(&now, i));
        if (order < 0)
            status = changed(tree, tp_tree_path(tree, i), "vanished", error);
        else if (order > 0)
            status = changed(tree, tp_tree_path(&now, i), "appeared", error);
        else if (!same_entry(&tree->entries[i], &now.entries[i]))
            status = changed(tree, tp_tree_path(tree, i), "changed", error);
    }
    free(now.entries);
    free(now.paths);
    return status;
}

tp_status tp_tree_open_file(const tp_tree *tree, size_t entry, tp_input *input, tp_error *error)
{
    const tp_tree_entry *e = &tree->entries[entry];
    const char *path = tp_tree_path(tree, entry);
    char shown[TP_SHOWN_PATH];
    int fd;
    tp_text_join(tree->name, path, shown);
    /* Without O_NONBLOCK a FIFO that took the file's place would keep us waiting. */
    do fd = openat(tree->fd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) {
        input->fd = -1;
        return tp_error_system(error, errno, "%s: cannot open", shown);
    }
    tp_status status = tp_input_take(input, fd, shown, error);
    if (status != TP_OK) return status;
    const struct stat *s = &input->stat;
    if ((uint64_t)s->st_size == e->size && s->st_mtim.tv_sec == e->seconds &&
        (uint32_t)s->st_mtim.tv_nsec == e->nanoseconds)
        return TP_OK;
    tp_input_close(input);
    return changed(tree, path, "changed", error);
}
