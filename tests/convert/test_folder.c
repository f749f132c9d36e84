/* Whole folders: into one container and back, compared, refused, changed meanwhile, and never half there.
 */
#include "support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "codec/bytes.h"
#include "codec/hash.h"
#include "convert/container.h"
#include "convert/folder.h"
#include "convert/open.h"
#include "faults.h"

static tp_error error;
static tp_report report;
static lines warnings;

static tp_options defaults(void)
{
    tp_options options;
    tp_options_init(&options);
    options.warning = lines_add;
    options.warning_context = &warnings;
    memset(&warnings, 0, sizeof warnings);
    memset(&error, 0, sizeof error);
    memset(&report, 0, sizeof report);
    return options;
}

static tp_status compress(const char *in, const char *out, const tp_options *options)
{
    return tp_compress_file(scratch(in), -1, scratch(out), -1, options, &report, &error);
}

static tp_status restore(const char *in, const char *out, const tp_options *options)
{
    return tp_decompress_file(scratch(in), -1, scratch(out), -1, options, &report, &error);
}

static tp_status verify(const char *in, const char *against, const tp_options *options)
{
    return tp_verify_file(scratch(in), -1, against ? scratch(against) : NULL, options, &report, &error);
}

#define OK(call)                                                                                           \
    do {                                                                                                   \
        if ((call) != TP_OK) fail_msg("%s", error.message);                                                \
    } while (0)

static int clean(void **state)
{
    (void)state;
    faults_reset();
    umask(022);
    scratch_remove();
    return 0;
}

/* An expected message, with the scratch folder for each "%s". */
static const char *said(const char *format, const char *first, const char *second)
{
    static char text[4096], a[1024], b[1024];
    snprintf(a, sizeof a, "%s", first ? scratch(first) : "");
    snprintf(b, sizeof b, "%s", second ? scratch(second) : "");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(text, sizeof text, format, a, b);
#pragma GCC diagnostic pop
    return text;
}

/* ------------------------------------------------------------------------------------------ trees */

static void folder(const char *path, mode_t mode)
{
    assert_int_equal(mkdir(scratch(path), 0777), 0);
    assert_int_equal(chmod(scratch(path), mode), 0);
}

static void file(const char *path, const void *data, size_t size, mode_t mode)
{
    write_file(scratch(path), data, size);
    assert_int_equal(chmod(scratch(path), mode), 0);
}

static void text(const char *path, const char *content)
{
    file(path, content, strlen(content), 0644);
}

static void shard(const char *path, unsigned first, unsigned last)
{
    checkpoint c = {0};
    for (unsigned i = first; i <= last; i++) {
        char name[32];
        snprintf(name, sizeof name, "layer.%u", i);
        fill_bf16(checkpoint_add(&c, name, "BF16", 600, 1000, 1200000), 600000, i);
    }
    bytes b = checkpoint_end(&c);
    file(path, b.data, b.size, 0644);
    free(b.data);
}

/* A model repository: shards with a common tensor, all sorts of names and modes, links, empty things. */
static void make_model(void)
{
    folder("model", 0755);
    shard("model/model-00001-of-00002.safetensors", 1, 3);
    shard("model/model-00002-of-00002.safetensors", 3, 4);
    text("model/config.json", "{\"architectures\": []}\n");
    file("model/.hidden", "hidden", 6, 0600);
    file("model/run.sh", "#!/bin/sh\n", 10, 0755);
    file("model/empty", NULL, 0, 0444);
    file("model/open to all", "x", 1, 0777);
    text("model/line\nbreak \x1b \xff", "odd");
    text("model/-dash", "dash");
    folder("model/a", 0755);
    text("model/a-b", "1");
    text("model/a.b", "2");
    text("model/a/b", "3");
    folder("model/a/none", 0700);
    folder("model/z", 0777);
    folder("model/z/deep", 0755);
    text("model/z/deep/x", "deep");
    text("model/z/deep/.y", "");
    folder("model/closed", 0755);
    text("model/closed/inside", "kept");
    assert_int_equal(chmod(scratch("model/closed"), 0555), 0);
    folder("blobs", 0755);
    shard("blobs/blob", 7, 7);
    assert_int_equal(symlink("../blobs/blob", scratch("model/linked.safetensors")), 0);
    assert_int_equal(symlink("linked.safetensors", scratch("model/twice linked.safetensors")), 0);
}
#define MODEL_FILES 17

static unsigned count_and_compare(const char *a, const char *b)
{
    unsigned found = 0;
    struct stat x, y;
    if (stat(a, &x) != 0 || lstat(b, &y) != 0) fail_msg("%s: %s", b, strerror(errno));
    if ((x.st_mode & (S_IFMT | 0777)) != (y.st_mode & (S_IFMT | 0777)))
        fail_msg("%s has mode %o, %s %o", a, x.st_mode, b, y.st_mode);
    if (!S_ISDIR(x.st_mode)) {
        assert_same_file(a, b);
        return 1;
    }
    for (unsigned turn = 0; turn < 2; turn++) {
        DIR *d = opendir(turn ? b : a);
        assert_non_null(d);
        for (struct dirent *e; (e = readdir(d));) {
            char inner_a[4096], inner_b[4096];
            if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
            snprintf(inner_a, sizeof inner_a, "%s/%s", a, e->d_name);
            snprintf(inner_b, sizeof inner_b, "%s/%s", b, e->d_name);
            if (!exists(turn ? inner_a : inner_b)) fail_msg("%s is only in one", e->d_name);
            if (turn == 0) found += count_and_compare(inner_a, inner_b);
        }
        closedir(d);
    }
    return found;
}

/* Names, kinds, modes and contents are equal; links in the first count as what they lead to. */
static void assert_same_tree(const char *a, const char *b, unsigned files)
{
    char x[512], y[512];
    snprintf(x, sizeof x, "%s", scratch(a));
    snprintf(y, sizeof y, "%s", scratch(b));
    assert_int_equal(count_and_compare(x, y), files);
}

/* ------------------------------------------------------------------------------------- round trips */

static void round_trip(void **state)
{
    (void)state;
    make_model();
    for (unsigned mode = 0; mode < 4; mode++) {
        tp_options options = defaults();
        options.threads = 1 + mode;
        options.verify = mode & 1;
        options.sha256 = mode & 2;
        options.force = true;
        OK(compress(mode & 1 ? "model/" : "model", "m.tpress", &options));
        assert_int_equal(report.files, MODEL_FILES);
        assert_int_equal(report.tensors, 7);
        assert_int_equal(report.duplicate_frames, 3); /* layer 3, the link to the link: header and layer */
        struct stat s;
        assert_int_equal(stat(scratch("m.tpress"), &s), 0);
        assert_int_equal(report.stored_bytes, s.st_size);
        uint64_t raw = report.raw_bytes;
        OK(restore("m.tpress", "back", &options));
        assert_int_equal(report.files, MODEL_FILES);
        assert_int_equal(report.raw_bytes, raw);
        assert_same_tree("model", "back", MODEL_FILES);
        OK(verify("m.tpress", NULL, &options));
        assert_int_equal(report.files, MODEL_FILES);
        OK(verify("m.tpress", "model", &options));
        OK(verify("m.tpress", "back/", &options));
        assert_int_equal(warnings.count, 0);
        assert_only("model", "blobs", "m.tpress", "back", NULL);
        /* The restored folder gives the same container. */
        OK(compress("back", "again.tpress", &options));
        assert_same_file(scratch("m.tpress"), scratch("again.tpress"));
        assert_int_equal(unlink(scratch("again.tpress")), 0);
        rename(scratch("back"), scratch("old"));
        OK(restore("m.tpress", "back", &options)); /* force, and nothing there */
        scratch_remove_tree("back");
        scratch_remove_tree("old");
    }
}

/* Folders stand before what is in them, the rest in the byte order of the paths. */
static void order(void **state)
{
    (void)state;
    static const char *const expected[] = {"-dash",
                                           ".hidden",
                                           "a",
                                           "a-b",
                                           "a.b",
                                           "a/b",
                                           "a/none",
                                           "closed",
                                           "closed/inside",
                                           "config.json",
                                           "empty",
                                           "line\nbreak \x1b \xff",
                                           "linked.safetensors",
                                           "model-00001-of-00002.safetensors",
                                           "model-00002-of-00002.safetensors",
                                           "open to all",
                                           "run.sh",
                                           "twice linked.safetensors",
                                           "z",
                                           "z/deep",
                                           "z/deep/.y",
                                           "z/deep/x"};
    static const uint16_t modes[] = {0644, 0600, 0755, 0644, 0644, 0644, 0700, 0555, 0644, 0644, 0444,
                                     0644, 0644, 0644, 0644, 0777, 0755, 0644, 0777, 0755, 0644, 0644};
    tp_options options = defaults();
    tp_reader *reader;
    make_model();
    OK(compress("model", "m.tpress", &options));
    OK(tp_open(scratch("m.tpress"), &reader, &error));
    assert_true(tp_reader_is_folder(reader));
    assert_int_equal(tp_reader_files(reader), sizeof expected / sizeof *expected);
    for (size_t i = 0; i < tp_reader_files(reader); i++) {
        tp_file_info info;
        struct stat s;
        OK(tp_reader_file(reader, i, &info));
        assert_int_equal(info.path.size, strlen(expected[i]));
        assert_memory_equal(info.path.data, expected[i], info.path.size);
        assert_int_equal(info.mode, modes[i]);
        char path[600];
        snprintf(path, sizeof path, "%s/%s", scratch("model"), expected[i]);
        assert_int_equal(stat(path, &s), 0);
        assert_int_equal(info.is_folder, S_ISDIR(s.st_mode));
        assert_int_equal(info.size, info.is_folder ? 0 : s.st_size);
    }
    tp_close(reader);
}

/* Threads, time, place and short reads change nothing. */
static void same_container_always(void **state)
{
    (void)state;
    tp_options options = defaults();
    make_model();
    OK(compress("model", "1.tpress", &options));
    OK(restore("1.tpress", "copy", &options)); /* files in place of links, made in another order, now */
    static const unsigned threads[] = {1, 2, 8, 40};
    for (size_t i = 0; i < 8; i++) {
        options.threads = threads[i / 2];
        options.force = true;
        injected.short_io = i >= 6;
        OK(compress(i % 2 ? "copy" : "model", "2.tpress", &options));
        faults_reset();
        assert_same_file(scratch("1.tpress"), scratch("2.tpress"));
    }
    injected.short_io = true;
    OK(restore("1.tpress", "back", &options));
    faults_reset();
    assert_same_tree("model", "back", MODEL_FILES);
}

/* As the Hub's client lays a model out: links into a store of blobs; the files themselves come back. */
static void hub_cache(void **state)
{
    (void)state;
    tp_options options = defaults();
    struct stat s;
    folder("models--x--y", 0755);
    folder("models--x--y/blobs", 0755);
    folder("models--x--y/refs", 0755);
    folder("models--x--y/snapshots", 0755);
    folder("models--x--y/snapshots/4f2c", 0755);
    shard("models--x--y/blobs/8d1e", 1, 2);
    text("models--x--y/blobs/77ab", "{}");
    text("models--x--y/refs/main", "4f2c");
    assert_int_equal(symlink("../../blobs/8d1e", scratch("models--x--y/snapshots/4f2c/model.safetensors")),
                     0);
    assert_int_equal(symlink("../../blobs/77ab", scratch("models--x--y/snapshots/4f2c/config.json")), 0);
    OK(compress("models--x--y/snapshots/4f2c", "s.tpress", &options));
    assert_int_equal(report.tensors, 2);
    OK(restore("s.tpress", "s", &options));
    assert_same_tree("models--x--y/snapshots/4f2c", "s", 2);
    assert_int_equal(lstat(scratch("s/model.safetensors"), &s), 0);
    assert_true(S_ISREG(s.st_mode));
    /* The cache as a whole: what the links lead to is there twice, but stored once. */
    OK(compress("models--x--y", "all.tpress", &options));
    assert_int_equal(report.files, 5);
    assert_int_equal(report.duplicate_frames, report.frames / 2);
    OK(verify("all.tpress", "models--x--y", &options));
}

static void empty_ones(void **state)
{
    (void)state;
    tp_options options = defaults();
    folder("nothing", 0755);
    OK(compress("nothing", "n.tpress", &options));
    assert_int_equal(report.files, 0);
    OK(restore("n.tpress", "back", &options));
    assert_same_tree("nothing", "back", 0);
    OK(verify("n.tpress", "back", &options));
    folder("nothing/a", 0755);
    folder("nothing/a/b", 0711);
    file("nothing/a/c", NULL, 0, 0640);
    OK(compress("nothing", "m.tpress", &options));
    OK(restore("m.tpress", "back2/", &options)); /* "dir/" is "dir" */
    assert_same_tree("nothing", "back2", 1);
    options.threads = 7;
    options.dry_run = true;
    OK(tp_compress_file(scratch("nothing"), -1, NULL, -1, &options, &report, &error));
    bytes b = read_file(scratch("m.tpress"));
    assert_int_equal(report.stored_bytes, b.size);
    free(b.data);
}

/* A descriptor of a folder serves as well; the path is only its name then. */
static void by_descriptor(void **state)
{
    (void)state;
    tp_options options = defaults();
    make_model();
    int fd = open(scratch("model"), O_RDONLY | O_DIRECTORY);
    OK(tp_compress_file("called so", fd, scratch("d.tpress"), -1, &options, &report, &error));
    close(fd);
    OK(compress("model", "m.tpress", &options));
    assert_same_file(scratch("m.tpress"), scratch("d.tpress"));
    fd = open(scratch("out"), O_CREAT | O_RDWR, 0666);
    assert_int_equal(tp_decompress_file(scratch("m.tpress"), -1, "out", fd, &options, &report, &error),
                     TP_INVALID_ARGUMENT);
    close(fd);
}

static void umask_holds_for_the_root_only(void **state)
{
    (void)state;
    tp_options options = defaults();
    struct stat s;
    make_model();
    umask(077);
    OK(compress("model", "m.tpress", &options));
    OK(restore("m.tpress", "back", &options));
    umask(022);
    assert_int_equal(stat(scratch("back"), &s), 0);
    assert_int_equal(s.st_mode & 0777, 0700);
    assert_int_equal(chmod(scratch("back"), 0755), 0);
    assert_same_tree("model", "back", MODEL_FILES);
}

static void holes(void **state)
{
    (void)state;
    tp_options options = defaults();
    struct stat s;
    folder("sparse", 0755);
    for (unsigned i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "sparse/%u", i);
        int fd = open(scratch(name), O_CREAT | O_RDWR, 0666);
        assert_int_equal(ftruncate(fd, (20 << 20) + (int)i), 0);
        close(fd);
    }
    OK(compress("sparse", "s.tpress", &options));
    OK(restore("s.tpress", "back", &options));
    assert_same_tree("sparse", "back", 3);
    assert_int_equal(stat(scratch("back/2"), &s), 0);
    assert_true(s.st_blocks * 512 <= 1 << 20);
}

/* -------------------------------------------------------------------------------------- duplicates */

static void shards_that_share(void **state)
{
    (void)state;
    tp_options options = defaults();
    folder("one", 0755);
    folder("two", 0755);
    shard("one/a.safetensors", 1, 4);
    shard("two/a.safetensors", 1, 4);
    shard("two/b.safetensors", 3, 6);
    OK(compress("one", "one.tpress", &options));
    uint64_t one = report.stored_bytes;
    OK(compress("two", "two.tpress", &options));
    assert_int_equal(report.duplicate_frames, 2);
    assert_int_equal(report.raw_bytes / 1000000, 9);
    /* Half of the second file is there already. */
    assert_in_range(report.stored_bytes, one * 14 / 10, one * 16 / 10);
    OK(restore("two.tpress", "back", &options));
    assert_same_tree("two", "back", 2);
    /* The same tensor as other bytes is not the same. */
    tp_reader *reader;
    size_t number;
    OK(tp_open(scratch("two.tpress"), &reader, &error));
    for (size_t i = 0; i < 2; i++) {
        tp_tensor_info info;
        OK(tp_reader_find(reader, i, "layer.3", 7, &number));
        OK(tp_reader_tensor(reader, number, &info));
        assert_int_equal(info.file, i);
        assert_int_equal(info.stored_nbytes > 0, i == 0);
        uint8_t *data = malloc(1200000), *expected = malloc(1200000);
        OK(tp_read_tensor(reader, number, data, 1200000, &error));
        fill_bf16(expected, 600000, 3);
        assert_memory_equal(data, expected, 1200000);
        free(data);
        free(expected);
    }
    assert_int_equal(tp_reader_find(reader, 1, "layer.1", 7, &number), TP_NOT_FOUND);
    assert_int_equal(tp_reader_find(reader, SIZE_MAX, "layer.6", 7, &number), TP_OK);
    assert_int_equal(number, 7);
    tp_close(reader);
}

/* --------------------------------------------------------------------------------------- refusals */

static void socket_at(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", scratch(path));
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    close(fd);
}

static void misfits(void **state)
{
    (void)state;
    tp_options options = defaults();
    folder("m", 0755);
    folder("m/sub", 0755);
    text("m/sub/fine", "x");
    folder("elsewhere", 0755);
    assert_int_equal(symlink("../../elsewhere", scratch("m/sub/link")), 0);
    assert_error(compress("m", "m.tpress", &options), error, TP_IO,
                 said("%s: is a link to a folder, which cannot be stored", "m/sub/link", NULL));
    unlink(scratch("m/sub/link"));
    assert_int_equal(symlink("nowhere", scratch("m/sub/link")), 0);
    assert_error(compress("m", "m.tpress", &options), error, TP_IO,
                 said("%s: is a link that leads nowhere, which cannot be stored", "m/sub/link", NULL));
    unlink(scratch("m/sub/link"));
    assert_int_equal(symlink("link", scratch("m/sub/link")), 0);
    assert_error(compress("m", "m.tpress", &options), error, TP_IO,
                 said("%s: is a link that leads nowhere, which cannot be stored", "m/sub/link", NULL));
    unlink(scratch("m/sub/link"));
    assert_int_equal(symlink("/dev/null", scratch("m/sub/link")), 0);
    assert_error(compress("m", "m.tpress", &options), error, TP_IO,
                 said("%s: is a device, which cannot be stored", "m/sub/link", NULL));
    unlink(scratch("m/sub/link"));
    assert_int_equal(mkfifo(scratch("m/pipe"), 0666), 0);
    assert_error(compress("m", "m.tpress", &options), error, TP_IO,
                 said("%s: is a FIFO, which cannot be stored", "m/pipe", NULL));
    /* Of several the first by name. */
    socket_at("m/a socket");
    assert_int_equal(symlink("pipe", scratch("m/to the pipe")), 0);
    assert_error(
        compress("m", "m.tpress", &options), error, TP_IO,
        said("%s: is a socket, which cannot be stored; there are 3 such entries", "m/a socket", NULL));
    assert_int_equal(tp_status_exit_code(TP_IO), 3);
    assert_only("m", "elsewhere", NULL);
}

static void unreadable(void **state)
{
    (void)state;
    tp_options options = defaults();
    make_model();
    injected.denied = "config.json";
    assert_error(compress("model", "m.tpress", &options), error, TP_IO,
                 said("%s: cannot open: Permission denied", "model/config.json", NULL));
    injected.denied = "z/deep";
    assert_error(compress("model", "m.tpress", &options), error, TP_IO,
                 said("%s: cannot open: Permission denied", "model/z/deep", NULL));
    injected.denied = "z/deep/x"; /* the last: all the others have been written */
    assert_error(compress("model", "m.tpress", &options), error, TP_IO,
                 said("%s: cannot open: Permission denied", "model/z/deep/x", NULL));
    faults_reset();
    assert_only("model", "blobs", NULL);
}

static void output_and_input(void **state)
{
    (void)state;
    tp_options options = defaults();
    make_model();
    assert_error(
        compress("model", "model/m.tpress", &options), error, TP_INVALID_ARGUMENT,
        said("%s: lies inside the input folder; name an output outside of it", "model/m.tpress", NULL));
    assert_int_equal(compress("model", "model/z/deep/m.tpress", &options), TP_INVALID_ARGUMENT);
    assert_int_equal(symlink("model/z", scratch("way in")), 0);
    assert_int_equal(compress("model", "way in/m.tpress", &options), TP_INVALID_ARGUMENT);
    assert_int_equal(compress("model/z", "model/z.tpress", &options), TP_OK); /* beside it */
    unlink(scratch("model/z.tpress"));
    /* The output is one of the files that the links lead to. */
    options.force = true;
    assert_error(compress("model", "blobs/blob", &options), error, TP_INVALID_ARGUMENT,
                 said("%s: the output is the input %s; choose another name", "blobs/blob",
                      "model/linked.safetensors"));
    int fd = open(scratch("model/stdout"), O_CREAT | O_RDWR, 0666);
    assert_int_equal(tp_compress_file(scratch("model"), -1, "stdout", fd, &options, &report, &error),
                     TP_INVALID_ARGUMENT);
    close(fd);
    unlink(scratch("model/stdout"));
    assert_only("model", "blobs", "way in", NULL);
}

static void too_deep(void **state)
{
    (void)state;
    tp_options options = defaults();
    char name[256], path[4200] = "";
    memset(name, 'd', 255);
    name[255] = 0;
    /* 15 names of 255 bytes and one of 254: a path of 4095 bytes, with a file at its end. */
    folder("deep", 0755);
    int fd = open(scratch("deep"), O_RDONLY | O_DIRECTORY);
    for (unsigned i = 0; i < 15; i++) {
        assert_int_equal(mkdirat(fd, name, 0755), 0);
        int next = openat(fd, name, O_RDONLY | O_DIRECTORY);
        close(fd);
        fd = next;
        strcat(path, name);
        strcat(path, "/");
    }
    name[254] = 0;
    strcat(path, name);
    int inner = openat(fd, name, O_CREAT | O_WRONLY, 0644);
    assert_int_equal(write(inner, "end", 3), 3);
    close(inner);
    assert_int_equal(15 * 256 + 254, 4094);
    OK(compress("deep", "d.tpress", &options));
    OK(restore("d.tpress", "back", &options));
    int root = open(scratch("back"), O_RDONLY | O_DIRECTORY);
    inner = openat(root, path, O_RDONLY);
    char end[4];
    assert_int_equal(read(inner, end, 4), 3);
    assert_memory_equal(end, "end", 3);
    close(inner);
    close(root);
    OK(verify("d.tpress", "deep", &options));
    /* Two bytes more. */
    strcat(name, "d");
    assert_int_equal(mkdirat(fd, name, 0755), 0);
    int last = openat(fd, name, O_RDONLY | O_DIRECTORY);
    assert_int_equal(mkdirat(last, "x", 0755), 0);
    assert_int_equal(compress("deep", "e.tpress", &options), TP_LIMIT);
    assert_non_null(strstr(error.message, "holds a path of more than 4095 bytes"));
    assert_int_equal(tp_status_exit_code(TP_LIMIT), 3);
    unlinkat(last, "x", AT_REMOVEDIR);
    close(last);
    unlinkat(fd, name, AT_REMOVEDIR);
    close(fd);
    assert_only("deep", "d.tpress", "back", NULL);
}

static void nested(void **state)
{
    (void)state;
    tp_options options = defaults();
    char path[4200] = "nest";
    folder(path, 0755);
    int fd = open(scratch("nest"), O_RDONLY | O_DIRECTORY);
    for (unsigned i = 0; i < 1000; i++) {
        assert_int_equal(mkdirat(fd, "d", 0755), 0);
        int next = openat(fd, "d", O_RDONLY | O_DIRECTORY);
        close(fd);
        fd = next;
    }
    int inner = openat(fd, "f", O_CREAT | O_WRONLY, 0600);
    close(inner);
    close(fd);
    OK(compress("nest", "n.tpress", &options));
    OK(restore("n.tpress", "back", &options));
    OK(verify("n.tpress", "back", &options));
    assert_int_equal(report.files, 1);
    /* And all of it goes away again after a failure. */
    injected.syncfs_errno = EIO;
    assert_int_equal(restore("n.tpress", "back2", &options), TP_IO);
    faults_reset();
    assert_only("nest", "n.tpress", "back", NULL);
}

/* ------------------------------------------------------------------------- what stands in the way */

static void final_name(void **state)
{
    (void)state;
    tp_options options = defaults(), force = defaults();
    force.force = true;
    make_model();
    OK(compress("model", "m.tpress", &options));
    folder("empty", 0755);
    folder("full", 0755);
    text("full/kept", "kept");
    text("file", "kept");
    assert_int_equal(symlink("empty", scratch("link")), 0);
    assert_int_equal(symlink("nowhere", scratch("dangling")), 0);
    assert_error(restore("m.tpress", "empty", &options), error, TP_EXISTS,
                 said("%s: exists already; choose another name or force it", "empty", NULL));
    for (unsigned i = 0; i < 2; i++) {
        const tp_options *o = i ? &force : &options;
        assert_error(restore("m.tpress", "full", o), error, TP_INVALID_ARGUMENT,
                     said("%s: is a folder that is not empty, which is never replaced; choose another name",
                          "full", NULL));
        static const char *const others[] = {"file", "link", "dangling"};
        for (size_t k = 0; k < 3; k++)
            assert_error(
                restore("m.tpress", others[k], o), error, TP_INVALID_ARGUMENT,
                said("%s: exists and is no folder, which is never replaced by one; choose another name",
                     others[k], NULL));
        assert_int_equal(restore("m.tpress", "m.tpress", o), TP_INVALID_ARGUMENT);
        assert_int_equal(restore("m.tpress", ".", o), TP_INVALID_ARGUMENT);
        assert_int_equal(restore("m.tpress", "empty/..", o), TP_INVALID_ARGUMENT);
        assert_int_equal(restore("m.tpress", "none/x", o), TP_IO);
        assert_int_equal(tp_decompress_file(scratch("m.tpress"), -1, "/", -1, o, &report, &error),
                         TP_INVALID_ARGUMENT);
        assert_int_equal(tp_decompress_file(scratch("m.tpress"), -1, "", -1, o, &report, &error),
                         TP_INVALID_ARGUMENT);
    }
    assert_only("model", "blobs", "m.tpress", "empty", "full", "file", "link", "dangling", NULL);
    OK(restore("m.tpress", "empty", &force));
    assert_same_tree("model", "empty", MODEL_FILES);
    assert_int_equal(restore("m.tpress", "empty", &force), TP_INVALID_ARGUMENT);
    /* A file system that cannot rename without replacing. */
    injected.no_noreplace = true;
    OK(restore("m.tpress", "other", &options));
    assert_true(injected.noreplace_refused > 0);
    assert_same_tree("model", "other", MODEL_FILES);
    assert_only("model", "blobs", "m.tpress", "empty", "full", "file", "link", "dangling", "other", NULL);
}

static char rival[512];
static bool rival_is_full;

/* While the folder is being restored somebody else makes one of that name. */
static bool make_rival(void *context, uint64_t done, uint64_t total)
{
    (void)context, (void)done, (void)total;
    char inner[600];
    mkdir(rival, 0755);
    snprintf(inner, sizeof inner, "%s/theirs", rival);
    if (rival_is_full) write_file(inner, "x", 1);
    return true;
}

static void somebody_was_faster(void **state)
{
    (void)state;
    tp_options options = defaults();
    make_model();
    OK(compress("model", "m.tpress", &options));
    snprintf(rival, sizeof rival, "%s", scratch("back"));
    options.progress = make_rival;
    for (unsigned mode = 0; mode < 8; mode++) {
        rival_is_full = mode & 1;
        options.force = mode & 2;
        injected.no_noreplace = mode & 4;
        tp_status status = restore("m.tpress", "back", &options);
        if (options.force && !rival_is_full) { /* an empty folder may be replaced */
            assert_int_equal(status, TP_OK);
            scratch_remove_tree("back");
            continue;
        }
        assert_int_equal(tp_status_exit_code(status), 2);
        assert_only("model", "blobs", "m.tpress", "back", NULL);
        if (rival_is_full) assert_int_equal(unlink(scratch("back/theirs")), 0);
        assert_int_equal(rmdir(rival), 0);
    }
}

/* ------------------------------------------------------------------------------ nothing half there */

static bool stop_at_the_end(void *context, uint64_t done, uint64_t total)
{
    (void)context;
    return done < total; /* modes are set by then */
}

static void failures_leave_nothing(void **state)
{
    (void)state;
    tp_options options = defaults();
    make_model();
    OK(compress("model", "m.tpress", &options));
    tp_reader *reader;
    tp_frame_entry entry;
    OK(tp_open(scratch("m.tpress"), &reader, &error));
    OK(tp_reader_frame(reader, tp_reader_frames(reader) - 1, &entry));
    tp_close(reader);

    injected.syncfs_errno = EIO;
    assert_error(restore("m.tpress", "back", &options), error, TP_IO,
                 said("%s: cannot write: Input/output error", "back", NULL));
    faults_reset();
    injected.write_room = 3000000;
    assert_int_equal(restore("m.tpress", "back", &options), TP_NO_SPACE);
    injected.write_room = 1000000;
    assert_int_equal(compress("model", "other.tpress", &options), TP_NO_SPACE);
    faults_reset();
    options.progress = stop_at_the_end;
    assert_int_equal(restore("m.tpress", "back", &options), TP_CANCELLED);
    assert_int_equal(compress("model", "other.tpress", &options), TP_CANCELLED);
    options.progress = NULL;
    options.max_output = 1000;
    assert_int_equal(restore("m.tpress", "back", &options), TP_LIMIT);
    options.max_output = 0;
    assert_only("model", "blobs", "m.tpress", NULL);

    /* Damage in the last file. */
    int fd = open(scratch("m.tpress"), O_RDWR);
    assert_int_equal(pwrite(fd, "?", 1, (off_t)entry.offset + entry.stored_size - 128), 1);
    close(fd);
    assert_int_equal(restore("m.tpress", "back", &options), TP_CORRUPT);
    memset(&warnings, 0, sizeof warnings);
    assert_error(verify("m.tpress", NULL, &options), error, TP_CORRUPT,
                 said("%s: damaged", "m.tpress", NULL));
    assert_int_equal(warnings.count, 1);
    assert_non_null(strstr(warnings.text, ": file 'z/deep/x': frame "));
    assert_only("model", "blobs", "m.tpress", NULL);
}

/* Containers with paths that a writer never makes: refused before anything is created. */
static void hostile(void **state)
{
    (void)state;
    static const struct {
        const char *paths[4]; /* '/' at the end: a folder */
        const char *message;
    } cases[] = {
        {{"../escaped"}, "file 0: its path has a component '..'"},
        {{"a/", "a/../../escaped"}, "file 1: its path has a component '..'"},
        {{"/tmp/escaped"}, "file 0: its path is absolute"},
        {{"a", "a/b"}, "file 1: its folder is a file"},
        {{"a/", "a"}, "file 1: its path occurs twice"},
        {{"a", "a"}, "file 1: its path occurs twice"},
        {{"a/b"}, "file 0: its folder is not listed before it"},
        {{"a/b", "a/"}, "file 0: its folder is not listed before it"},
        {{"."}, "file 0: its path has a component '.'"},
        {{"a/", "a/."}, "file 1: its path has a component '.'"},
        {{"a/", "a//b"}, "file 1: its path has an empty component"},
        {{""}, "file 0: its path is empty"},
        {{"nul@byte"}, "file 0: its path contains a zero byte"},
    };
    tp_options options = defaults();
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        tp_index x = {.folder = true};
        size_t sizes[4] = {0}, at = 0;
        for (; x.files < 4 && cases[c].paths[x.files]; x.files++) {
            const char *path = cases[c].paths[x.files];
            sizes[x.files] = strlen(path) - (strlen(path) > 1 && path[strlen(path) - 1] == '/');
            x.string_bytes += sizes[x.files];
        }
        OK(tp_index_allocate(&x, &error));
        memset(x.raw + 64, 0, x.raw_size - 64);
        for (uint64_t i = 0; i < x.files; i++) {
            tp_hasher hasher;
            tp_hasher_init(&hasher);
            tp_hasher_end(&hasher, x.file_digest + 2 * i);
            x.file_kind[i] = sizes[i] < strlen(cases[c].paths[i]);
            x.file_path_len[i] = (uint32_t)sizes[i];
            memcpy(x.strings + at, cases[c].paths[i], sizes[i]);
            at += sizes[i];
        }
        for (size_t i = 0; i < x.string_bytes; i++)
            if (x.strings[i] == '@') x.strings[i] = 0;
        parts p = {.index = {x.raw, x.raw_size}, .frames = {malloc(1), 0}};
        tp_container_header(p.header);
        static const uint64_t zero[2];
        tp_container_footer(p.footer, 0, 0, 0, zero, zero);
        bytes b = put_together(&p);
        write_file(scratch("h.tpress"), b.data, b.size);
        char expected[256];
        snprintf(expected, sizeof expected, "%%s: index: %s", cases[c].message);
        assert_error(restore("h.tpress", "out", &options), error, TP_CORRUPT,
                     said(expected, "h.tpress", NULL));
        assert_only("h.tpress", NULL);
        free(b.data);
        parts_free(&p);
    }
}

/* ---------------------------------------------------------------------------- changed while it is read */

static char changed_path[512];
static unsigned change;

/* Called for the warning about a file in the middle of the order. */
static void change_something(void *context, const char *line)
{
    (void)context, (void)line;
    if (change == 0) write_file(changed_path, "appears", 7);
    if (change == 1) unlink(changed_path);
    if (change == 2) write_file(changed_path, "other, longer content", 21);
    if (change == 3) chmod(changed_path, 0600);
    if (change == 4) {
        unlink(changed_path);
        mkfifo(changed_path, 0644);
    }
    if (change == 5) {
        unlink(changed_path);
        mkdir(changed_path, 0755);
    }
}

static void changing_folder(void **state)
{
    (void)state;
    static const char *const early[] = {
        "%s: appeared while the folder was read", "%s: vanished while the folder was read",
        "%s: changed while the folder was read",  "%s: changed while the folder was read",
        "%s: is a FIFO, which cannot be stored",  "%s: changed while the folder was read"};
    for (change = 0; change < 6; change++) {
        for (unsigned late = 0; late < 2;
             late++) { /* the file comes before or after that with the warning */
            tp_options options = defaults();
            options.warning = change_something;
            options.threads = 1;
            const char *name = late ? "m/z" : "m/a";
            folder("m", 0755);
            text("m/b.safetensors", "broken");
            /* So many files that those at the end are not open yet when the warning comes. */
            for (unsigned i = 0; i < 100; i++) {
                char path[32];
                snprintf(path, sizeof path, "m/n%02u", i);
                text(path, "x");
            }
            snprintf(changed_path, sizeof changed_path, "%s", scratch(name));
            if (change > 0) text(name, "content");
            tp_status status = compress("m", "m.tpress", &options);
            assert_int_equal(status, TP_IO);
            /* One that is opened later is found there. */
            if (!late || change == 0 || change == 3) {
                assert_string_equal(error.message, said(early[change], name, NULL));
            } else {
                assert_memory_equal(error.message, scratch(name), strlen(scratch(name)));
            }
            clean(NULL);
        }
    }
}

/* Reading an earlier file again, to compare a frame that has the hash of one of its own. */
static void changed_before_comparing(void **state)
{
    (void)state;
    tp_options options = defaults();
    folder("m", 0755);
    shard("m/a.safetensors", 1, 2);
    text("m/b.safetensors", "broken");
    shard("m/c.safetensors", 2, 3);
    snprintf(changed_path, sizeof changed_path, "%s", scratch("m/a.safetensors"));
    change = 2;
    options.warning = change_something;
    assert_error(compress("m", "m.tpress", &options), error, TP_IO,
                 said("%s: changed while the folder was read", "m/a.safetensors", NULL));
    assert_only("m", NULL);
}

/* ----------------------------------------------------------------------------------------- comparing */

static void verify_against(void **state)
{
    (void)state;
    tp_options options = defaults();
    char expected[4096];
    make_model();
    OK(compress("model", "m.tpress", &options));
    OK(restore("m.tpress", "back", &options));
    text("lone", "x");
    OK(compress("lone", "lone.tpress", &options));
#define DIFFERS(lines)                                                                                     \
    do {                                                                                                   \
        snprintf(expected, sizeof expected, "%s",                                                          \
                 said("%s: intact, but differs from %s", "m.tpress", "back"));                             \
        memset(&warnings, 0, sizeof warnings);                                                             \
        assert_error(verify("m.tpress", "back", &options), error, TP_MISMATCH, expected);                  \
        assert_string_equal(warnings.text, lines);                                                         \
    } while (0)
    text("back/more", "x");
    DIFFERS(said("%2$s: is not in %1$s\n", "m.tpress", "back/more"));
    unlink(scratch("back/more"));
    folder("back/z/more", 0755);
    DIFFERS(said("%2$s: is not in %1$s\n", "m.tpress", "back/z/more"));
    rmdir(scratch("back/z/more"));
    unlink(scratch("back/a.b"));
    DIFFERS(said("%s: file 'a.b': is not in %s\n", "m.tpress", "back"));
    folder("back/a.b", 0644);
    DIFFERS(said("%s: file 'a.b': is a file, but %s is a folder\n", "m.tpress", "back/a.b"));
    rmdir(scratch("back/a.b"));
    text("back/a.b", "2");
    chmod(scratch("back/a.b"), 0600);
    DIFFERS(said("%s: file 'a.b': has the permissions 644, %s has 600\n", "m.tpress", "back/a.b"));
    chmod(scratch("back/a.b"), 0644);
    chmod(scratch("back/z"), 0700);
    DIFFERS(said("%s: file 'z': has the permissions 777, %s has 700\n", "m.tpress", "back/z"));
    chmod(scratch("back/z"), 0777);
    text("back/a.b", "3");
    DIFFERS(said("%s: file 'a.b': differs from %s at byte 0\n", "m.tpress", "back/a.b"));
    text("back/a.b", "22");
    DIFFERS(said("%s: file 'a.b': has 1 bytes, %s has 2\n", "m.tpress", "back/a.b"));
    text("back/a.b", "2");
    rmdir(scratch("back/a/none"));
    DIFFERS(said("%s: file 'a/none': is not in %s\n", "m.tpress", "back"));
    folder("back/a/none", 0700);
    OK(verify("m.tpress", "back", &options));
    /* A tensor in one of several files. */
    bytes b = read_file(scratch("back/model-00002-of-00002.safetensors"));
    b.data[b.size - 100] ^= 1;
    file("back/model-00002-of-00002.safetensors", b.data, b.size, 0644);
    char byte[64];
    snprintf(byte, sizeof byte, " at byte %zu\n", b.size - 100);
    free(b.data);
    DIFFERS(strcat(strcpy(expected, said("%s: file 'model-00002-of-00002.safetensors': tensor 'layer.4': "
                                         "differs from %s",
                                         "m.tpress", "back/model-00002-of-00002.safetensors")),
                   byte));
    assert_error(verify("m.tpress", "lone", &options), error, TP_MISMATCH,
                 said("%s: holds a folder, but %s is a file", "m.tpress", "lone"));
    assert_error(verify("lone.tpress", "model", &options), error, TP_MISMATCH,
                 said("%s: holds a file, but %s is a folder", "lone.tpress", "model"));
    assert_int_equal(verify("m.tpress", "nothing", &options), TP_IO);
    assert_int_equal(mkfifo(scratch("back/pipe"), 0666), 0);
    assert_error(verify("m.tpress", "back", &options), error, TP_IO,
                 said("%s: is a FIFO, which cannot be stored", "back/pipe", NULL));
    injected.denied = "a.b";
    assert_int_equal(verify("m.tpress", "model", &options), TP_IO);
}

static void sha256_of_each(void **state)
{
    (void)state;
    tp_options options = defaults();
    static const uint8_t of_abc[32] = {0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40,
                                       0xde, 0x5d, 0xae, 0x22, 0x23, 0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17,
                                       0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad};
    options.sha256 = true;
    make_model();
    text("model/0", "abc");
    folder("model/1", 0755);
    text("model/2", "abc");
    OK(compress("model", "m.tpress", &options));
    tp_reader *reader;
    tp_file_info info;
    OK(tp_open(scratch("m.tpress"), &reader, &error));
    for (size_t i = 0, found = 0; i < tp_reader_files(reader); i++) {
        OK(tp_reader_file(reader, i, &info));
        assert_int_equal(info.has_sha256, !info.is_folder);
        if (info.path.size == 1 && (info.path.data[0] == '0' || info.path.data[0] == '2')) {
            assert_memory_equal(info.sha256, of_abc, 32);
            found++;
        }
        if (i + 1 == tp_reader_files(reader)) assert_int_equal(found, 2);
    }
    tp_close(reader);
    OK(verify("m.tpress", "model", &options));
    OK(verify("m.tpress", NULL, &options));
    /* Another digest in the place of the third entry's. */
    bytes b = read_file(scratch("m.tpress"));
    parts p = take_apart(b);
    size_t files = (size_t)tp_load64(p.index.data + 8);
    p.index.data[64 + 24 * files + 32 * 4] ^= 1;
    bytes changed = put_together(&p);
    write_file(scratch("c.tpress"), changed.data, changed.size);
    assert_int_equal(verify("c.tpress", NULL, &options), TP_CORRUPT);
    assert_non_null(strstr(warnings.text, ": file '2': its SHA-256 differs"));
    parts_free(&p);
    free(changed.data);
    free(b.data);
}

static void warns_once_a_file(void **state)
{
    (void)state;
    tp_options options = defaults();
    make_model();
    text("model/1.safetensors", "broken");
    text("model/a/2.safetensors", "");
    checkpoint c = {0};
    memset(checkpoint_add(&c, "fine", "U8", 2, 2, 4), 1, 4);
    memset(checkpoint_add(&c, "new", "F3_NEW", 2, 2, 5), 3, 5);
    bytes b = checkpoint_end(&c);
    file("model/z/3.safetensors", b.data, b.size, 0644);
    free(b.data);
    OK(compress("model", "m.tpress", &options));
    assert_int_equal(warnings.count, 3);
    char first[700], second[700], third[700];
    snprintf(first, sizeof first, "%s: stored as bytes: ", scratch("model/1.safetensors"));
    snprintf(second, sizeof second, "\n%s: stored as bytes: ", scratch("model/a/2.safetensors"));
    snprintf(third, sizeof third, "\n%s: 1 of 2 tensors stored as bytes: tensor 'new'",
             scratch("model/z/3.safetensors"));
    assert_memory_equal(warnings.text, first, strlen(first));
    const char *at = strstr(warnings.text, second);
    assert_non_null(at);
    assert_non_null(strstr(at, third));
    OK(restore("m.tpress", "back", &options));
    assert_same_tree("model", "back", MODEL_FILES + 3);
}

/* ---------------------------------------------------------------------------------------- many files */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double all_verbs(const char *name, unsigned count)
{
    tp_options options = defaults();
    char path[64], content[32], container[64], back[64];
    folder(name, 0755);
    for (unsigned i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%u", name, i % 100);
        if (i < 100) folder(path, 0755);
        snprintf(path, sizeof path, "%s/%u/%u", name, i % 100, i);
        snprintf(content, sizeof content, "content %u\n", i / 3 * 3); /* each three times */
        text(path, content);
    }
    snprintf(container, sizeof container, "%s.tpress", name);
    snprintf(back, sizeof back, "%s.back", name);
    double start = seconds();
    OK(compress(name, container, &options));
    assert_int_equal(report.files, count);
    assert_int_equal(report.frames, count);
    assert_int_equal(report.duplicate_frames, count / 3 * 2);
    OK(restore(container, back, &options));
    OK(verify(container, back, &options));
    double took = seconds() - start;
    assert_same_tree(name, back, count);
    return took;
}

/* Descriptors do not grow with the files, and time only as much as they do. */
static void many_files(void **state)
{
    (void)state;
    struct rlimit before, few;
    scratch_in_memory();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = 48;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    unsigned count = SLOW_BUILD ? 250 : 2500;
    double some = all_verbs("some", count), more = all_verbs("more", 4 * count);
    setrlimit(RLIMIT_NOFILE, &before);
    fprintf(stderr, "%u files: %.2f s, %u files: %.2f s\n", count, some, 4 * count, more);
    if (!SLOW_BUILD) assert_true(more < 12 * some + 1);
}

int test_folder(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(round_trip, clean),
        cmocka_unit_test_setup(order, clean),
        cmocka_unit_test_setup(same_container_always, clean),
        cmocka_unit_test_setup(hub_cache, clean),
        cmocka_unit_test_setup(empty_ones, clean),
        cmocka_unit_test_setup(by_descriptor, clean),
        cmocka_unit_test_setup(umask_holds_for_the_root_only, clean),
        cmocka_unit_test_setup(holes, clean),
        cmocka_unit_test_setup(shards_that_share, clean),
        cmocka_unit_test_setup(misfits, clean),
        cmocka_unit_test_setup(unreadable, clean),
        cmocka_unit_test_setup(output_and_input, clean),
        cmocka_unit_test_setup(too_deep, clean),
        cmocka_unit_test_setup(nested, clean),
        cmocka_unit_test_setup(final_name, clean),
        cmocka_unit_test_setup(somebody_was_faster, clean),
        cmocka_unit_test_setup(failures_leave_nothing, clean),
        cmocka_unit_test_setup(hostile, clean),
        cmocka_unit_test_setup(changing_folder, clean),
        cmocka_unit_test_setup(changed_before_comparing, clean),
        cmocka_unit_test_setup(verify_against, clean),
        cmocka_unit_test_setup(sha256_of_each, clean),
        cmocka_unit_test_setup(warns_once_a_file, clean),
        cmocka_unit_test_setup(many_files, clean),
    };
    return cmocka_run_group_tests_name("folder", tests, NULL, clean);
}
