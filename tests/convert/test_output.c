/* An output appears whole under its name or not at all, and replaces nothing that it was not asked to. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "convert/output.h"
#include "faults.h"

static tp_output output;
static tp_error error;

static tp_status open_output(const char *path, bool force, const struct stat *input)
{
    memset(&error, 0, sizeof error);
    return tp_output_open(&output, path, -1, force, input, NULL, &error);
}

static void assert_content(const char *name, const char *text)
{
    bytes b = read_file(scratch(name));
    assert_int_equal(b.size, strlen(text));
    assert_memory_equal(b.data, text, b.size);
    free(b.data);
}

static int clean(void **state)
{
    (void)state;
    faults_reset();
    scratch_remove();
    return 0;
}

static void appears_when_committed(void **state)
{
    (void)state;
    mode_t mask = umask(027);
    assert_int_equal(open_output(scratch("new"), false, NULL), TP_OK);
    umask(mask);
    assert_true(tp_output_is_file(&output));
    assert_int_equal(tp_output_write(&output, "hello", 5, &error), TP_OK);
    assert_false(exists(scratch("new")));
    assert_int_equal(tp_output_commit(&output, &error), TP_OK);
    tp_output_close(&output);
    assert_content("new", "hello");
    struct stat s;
    assert_int_equal(stat(scratch("new"), &s), 0);
    assert_int_equal(s.st_mode & 07777, 0640);
    assert_only("new", NULL);
}

static void vanishes_otherwise(void **state)
{
    (void)state;
    assert_int_equal(open_output(scratch("new"), false, NULL), TP_OK);
    assert_int_equal(tp_output_write(&output, "hello", 5, &error), TP_OK);
    tp_output_close(&output);
    assert_only(NULL);
    write_file(scratch("old"), "old", 3);
    assert_int_equal(open_output(scratch("old"), true, NULL), TP_OK);
    assert_int_equal(tp_output_write(&output, "hello", 5, &error), TP_OK);
    tp_output_close(&output);
    assert_content("old", "old");
    assert_only("old", NULL);
}

static void keeps_what_exists(void **state)
{
    (void)state;
    char expected[600];
    write_file(scratch("old"), "old", 3);
    snprintf(expected, sizeof expected, "%s: exists already; choose another name or force it",
             scratch("old"));
    assert_error(open_output(scratch("old"), false, NULL), error, TP_EXISTS, expected);
    /* Somebody else was faster. */
    assert_int_equal(open_output(scratch("race"), false, NULL), TP_OK);
    assert_int_equal(tp_output_write(&output, "mine", 4, &error), TP_OK);
    write_file(scratch("race"), "theirs", 6);
    assert_int_equal(tp_output_commit(&output, &error), TP_EXISTS);
    tp_output_close(&output);
    assert_content("race", "theirs");
    assert_content("old", "old");
    assert_only("old", "race", NULL);
    /* Links that lead nowhere exist, too. */
    assert_int_equal(symlink("nowhere", scratch("link")), 0);
    assert_int_equal(open_output(scratch("link"), false, NULL), TP_EXISTS);
}

static void replaces_when_forced(void **state)
{
    (void)state;
    write_file(scratch("old"), "old", 3);
    assert_int_equal(symlink("old", scratch("link")), 0);
    assert_int_equal(open_output(scratch("old"), true, NULL), TP_OK);
    assert_int_equal(tp_output_write(&output, "new", 3, &error), TP_OK);
    assert_content("old", "old");
    assert_int_equal(tp_output_commit(&output, &error), TP_OK);
    tp_output_close(&output);
    assert_content("old", "new");
    assert_only("old", "link", NULL);
    /* Of a link the link itself: what it leads to was not named. */
    assert_int_equal(open_output(scratch("link"), true, NULL), TP_OK);
    assert_int_equal(tp_output_write(&output, "third", 5, &error), TP_OK);
    assert_int_equal(tp_output_commit(&output, &error), TP_OK);
    tp_output_close(&output);
    assert_content("old", "new");
    assert_content("link", "third");
    /* And of several names of one file only the one given. */
    assert_int_equal(link(scratch("old"), scratch("hard")), 0);
    assert_int_equal(open_output(scratch("hard"), true, NULL), TP_OK);
    assert_int_equal(tp_output_commit(&output, &error), TP_OK);
    tp_output_close(&output);
    assert_content("old", "new");
    assert_content("hard", "");
    assert_only("old", "link", "hard", NULL);
}

static void never_the_input(void **state)
{
    (void)state;
    struct stat s;
    char expected[600];
    write_file(scratch("in"), "in", 2);
    assert_int_equal(stat(scratch("in"), &s), 0);
    assert_int_equal(symlink("in", scratch("soft")), 0);
    assert_int_equal(link(scratch("in"), scratch("hard")), 0);
    const char *names[] = {"in", "soft", "hard"};
    for (int i = 0; i < 6; i++) {
        snprintf(expected, sizeof expected, "%s: the output is the input; choose another name",
                 scratch(names[i / 2]));
        assert_error(open_output(scratch(names[i / 2]), i % 2, &s), error, TP_INVALID_ARGUMENT, expected);
    }
    int fd = open(scratch("in"), O_RDWR);
    assert_int_equal(tp_output_open(&output, NULL, fd, true, &s, NULL, &error), TP_INVALID_ARGUMENT);
    assert_string_equal(error.message, "stdout: the output is the input; choose another name");
    close(fd);
    /* It may come to stand there later. */
    assert_int_equal(open_output(scratch("later"), true, &s), TP_OK);
    assert_int_equal(link(scratch("in"), scratch("later")), 0);
    assert_int_equal(tp_output_commit(&output, &error), TP_INVALID_ARGUMENT);
    tp_output_close(&output);
    assert_content("later", "in");
    assert_only("in", "soft", "hard", "later", NULL);
}

static void only_ordinary_files(void **state)
{
    (void)state;
    char expected[600];
    assert_int_equal(mkdir(scratch("folder"), 0777), 0);
    snprintf(expected, sizeof expected, "%s: is a folder; name a file in it", scratch("folder"));
    assert_error(open_output(scratch("folder"), true, NULL), error, TP_INVALID_ARGUMENT, expected);
    snprintf(expected, sizeof expected, "%s: is a folder; name a file in it", scratch("folder/"));
    assert_error(open_output(scratch("folder/"), true, NULL), error, TP_INVALID_ARGUMENT, expected);
    assert_error(open_output("/dev/null", true, NULL), error, TP_INVALID_ARGUMENT,
                 "/dev/null: is not an ordinary file; write to stdout for that");
    assert_error(open_output("/dev/stdout", true, NULL), error, TP_INVALID_ARGUMENT,
                 "/dev/stdout: is not an ordinary file; write to stdout for that");
    assert_int_equal(mkfifo(scratch("fifo"), 0666), 0);
    assert_int_equal(open_output(scratch("fifo"), true, NULL), TP_INVALID_ARGUMENT);
    assert_error(open_output("", false, NULL), error, TP_INVALID_ARGUMENT, ": the output's name is empty");
    assert_int_equal(open_output("..", false, NULL), TP_INVALID_ARGUMENT);
    snprintf(expected, sizeof expected, "%s: cannot open its folder: No such file or directory",
             scratch("none/x"));
    assert_error(open_output(scratch("none/x"), false, NULL), error, TP_IO, expected);
    assert_int_equal(tp_output_open(&output, NULL, -1, false, NULL, NULL, &error), TP_INVALID_ARGUMENT);
    rmdir(scratch("folder"));
}

static void long_names(void **state)
{
    (void)state;
    char name[256];
    memset(name, 'n', 255);
    name[255] = 0;
    write_file(scratch(name), "old", 3);
    assert_int_equal(open_output(scratch(name), true, NULL), TP_OK); /* goes through a temporary name */
    assert_int_equal(tp_output_write(&output, "new", 3, &error), TP_OK);
    assert_int_equal(tp_output_commit(&output, &error), TP_OK);
    tp_output_close(&output);
    assert_content(name, "new");
    assert_only(name, NULL);
}

/* The same where files cannot be unnamed: under a temporary name meanwhile. */
static void without_unnamed_files(void **state)
{
    (void)state;
    for (int force = 0; force < 2; force++) {
        faults_reset();
        injected.no_tmpfile = true;
        assert_int_equal(open_output(scratch("new"), force, NULL), TP_OK);
        assert_int_equal(injected.tmpfile_refused, 1);
        assert_non_null(output.temporary);
        assert_memory_equal(output.temporary, ".new.tpress-", 12);
        assert_int_equal(strlen(output.temporary), 18);
        assert_only(output.temporary, NULL);
        tp_output_close(&output);
        assert_only(NULL);
    }
    for (int force = 0; force < 2; force++) {
        assert_int_equal(open_output(scratch("new"), force, NULL), TP_OK);
        assert_int_equal(tp_output_write(&output, "hello", 5, &error), TP_OK);
        assert_int_equal(tp_output_commit(&output, &error), TP_OK);
        tp_output_close(&output);
        assert_content("new", "hello");
        assert_only("new", NULL);
    }
    assert_int_equal(open_output(scratch("race"), false, NULL), TP_OK);
    write_file(scratch("race"), "theirs", 6);
    assert_int_equal(tp_output_commit(&output, &error), TP_EXISTS);
    tp_output_close(&output);
    assert_content("race", "theirs");
    assert_only("new", "race", NULL);
    /* Nor a rename that replaces nothing: by a link. */
    injected.no_noreplace = true;
    assert_int_equal(open_output(scratch("linked"), false, NULL), TP_OK);
    assert_int_equal(tp_output_write(&output, "hello", 5, &error), TP_OK);
    assert_int_equal(tp_output_commit(&output, &error), TP_OK);
    tp_output_close(&output);
    assert_int_equal(injected.noreplace_refused, 1);
    assert_content("linked", "hello");
    assert_int_equal(open_output(scratch("race2"), false, NULL), TP_OK);
    write_file(scratch("race2"), "theirs", 6);
    assert_int_equal(tp_output_commit(&output, &error), TP_EXISTS);
    tp_output_close(&output);
    assert_only("new", "race", "race2", "linked", NULL);
    /* Nor links: an error rather than a chance of replacing something. */
    injected.no_link = true;
    assert_int_equal(open_output(scratch("none"), false, NULL), TP_OK);
    assert_int_equal(tp_output_commit(&output, &error), TP_IO);
    tp_output_close(&output);
    assert_only("new", "race", "race2", "linked", NULL);
}

static void failing_writes(void **state)
{
    (void)state;
    char expected[600];
    injected.write_room = 7;
    assert_int_equal(open_output(scratch("new"), false, NULL), TP_OK);
    assert_int_equal(tp_output_write(&output, "hello", 5, &error), TP_OK);
    snprintf(expected, sizeof expected, "%s: cannot write: No space left on device", scratch("new"));
    assert_error(tp_output_write(&output, "hello", 5, &error), error, TP_NO_SPACE, expected);
    tp_output_close(&output);
    faults_reset();
    injected.fsync_errno = EIO;
    assert_int_equal(open_output(scratch("new"), false, NULL), TP_OK);
    snprintf(expected, sizeof expected, "%s: cannot write: Input/output error", scratch("new"));
    assert_error(tp_output_commit(&output, &error), error, TP_IO, expected);
    tp_output_close(&output);
    assert_only(NULL);
    faults_reset();
    injected.short_io = true;
    assert_int_equal(open_output(scratch("new"), false, NULL), TP_OK);
    assert_int_equal(tp_output_write(&output, "hello, world", 12, &error), TP_OK);
    assert_int_equal(output.size, 12);
    assert_int_equal(tp_output_write_at(&output, "W", 1, 7, &error), TP_OK);
    assert_int_equal(tp_output_commit(&output, &error), TP_OK);
    tp_output_close(&output);
    assert_content("new", "hello, World");
}

static void writes_anywhere(void **state)
{
    (void)state;
    assert_int_equal(open_output(scratch("file"), false, NULL), TP_OK);
    assert_int_equal(tp_output_reserve(&output, 10, &error), TP_OK);
    assert_int_equal(tp_output_write_at(&output, "xyz", 3, 7, &error), TP_OK);
    assert_int_equal(tp_output_write_at(&output, "abc", 3, 0, &error), TP_OK);
    assert_int_equal(tp_output_commit(&output, &error), TP_OK);
    tp_output_close(&output);
    bytes b = read_file(scratch("file"));
    assert_int_equal(b.size, 10);
    assert_memory_equal(b.data, "abc\0\0\0\0xyz", 10);
    free(b.data);
    assert_int_equal(open_output(scratch("huge"), false, NULL), TP_OK);
    assert_int_equal(tp_output_reserve(&output, (uint64_t)1 << 62, &error), TP_NO_SPACE);
    tp_output_close(&output);
    assert_only("file", NULL);
}

static void descriptors(void **state)
{
    (void)state;
    int fd = open("/dev/full", O_WRONLY);
    if (fd >= 0) {
        assert_int_equal(tp_output_open(&output, NULL, fd, false, NULL, NULL, &error), TP_OK);
        assert_error(tp_output_write(&output, "hello", 5, &error), error, TP_NO_SPACE,
                     "stdout: cannot write: No space left on device");
        tp_output_close(&output);
        close(fd);
    }
    int ends[2];
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    assert_int_equal(tp_output_open(&output, "pipe", ends[1], false, NULL, NULL, &error), TP_OK);
    assert_false(tp_output_is_file(&output));
    assert_error(tp_output_write(&output, "hello", 5, &error), error, TP_IO,
                 "pipe: cannot write: Broken pipe");
    tp_output_close(&output);
    assert_int_equal(fcntl(ends[1], F_GETFD), 0); /* stays the caller's */
    close(ends[1]);
}

static bool refuse(void *context, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    return ++*(int *)context < 3;
}

/* A reader that does not read keeps nobody from stopping. */
static void stops_in_a_full_pipe(void **state)
{
    (void)state;
    int ends[2], calls = 0;
    tp_options options;
    tp_progress progress;
    tp_options_init(&options);
    options.progress = refuse;
    options.progress_context = &calls;
    tp_progress_init(&progress, &options);
    size_t size = (size_t)4 << 20;
    void *data = calloc(1, size);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(tp_output_open(&output, "pipe", ends[1], false, NULL, &progress, &error), TP_OK);
    assert_int_equal(tp_output_write(&output, data, size, &error), TP_CANCELLED);
    assert_int_equal(calls, 3);
    tp_output_close(&output);
    close(ends[0]);
    close(ends[1]);
    free(data);
}

int test_output(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(appears_when_committed, clean),
        cmocka_unit_test_setup(vanishes_otherwise, clean),
        cmocka_unit_test_setup(keeps_what_exists, clean),
        cmocka_unit_test_setup(replaces_when_forced, clean),
        cmocka_unit_test_setup(never_the_input, clean),
        cmocka_unit_test_setup(only_ordinary_files, clean),
        cmocka_unit_test_setup(long_names, clean),
        cmocka_unit_test_setup(without_unnamed_files, clean),
        cmocka_unit_test_setup(failing_writes, clean),
        cmocka_unit_test_setup(writes_anywhere, clean),
        cmocka_unit_test_setup(descriptors, clean),
        cmocka_unit_test(stops_in_a_full_pipe),
    };
    return cmocka_run_group_tests_name("output", tests, NULL, clean);
}
