/* tensorpress: the command. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "message.h"
#include "signals.h"
#include "verbs.h"

static const struct verb *const verbs[] = {
    &verb_compress, &verb_decompress, &verb_verify, &verb_inspect, &verb_extract,
    &verb_bench,    &verb_doctor,     &verb_load,   &verb_convert,
};

static void print_help(void)
{
    fputs("usage: tensorpress VERB [options] ARGUMENTS\n"
          "\n"
          "Makes model checkpoints smaller without changing a bit: converts files (safetensors, GGUF, any "
          "other) and\n"
          "whole model folders into compressed containers and restores them exactly.\n"
          "\n"
          "Verbs:\n"
          "  compress    convert a checkpoint or a folder into a container\n"
          "  decompress  restore the original file or folder\n"
          "  verify      check every checksum of a container, or compare it with the original\n"
          "  inspect     show what is in a checkpoint, folder or container\n"
          "  extract     write the bytes of one tensor\n"
          "  load        load all tensors onto a device, decoding there\n"
          "  convert     to a DFloat11 checkpoint, or back from one\n"
          "  bench       measure ratio and speed in memory\n"
          "  doctor      show CPU kernels, devices and library versions, and test them\n"
          "\n"
          "'tensorpress VERB --help' shows the options of a verb; 'tensorpress --version' the version.\n"
          "\n"
          "Examples:\n"
          "  tensorpress compress model.safetensors\n"
          "  tensorpress verify model.safetensors.tpress --against model.safetensors\n"
          "  tensorpress decompress model.safetensors.tpress -o restored.safetensors\n"
          "\n"
          "Exit status: 0 done, 1 the data is wrong, 2 wrong usage, 3 the system refused, 4 not supported "
          "here.\n",
          stdout);
}

static void print_version(void)
{
    printf("tensorpress %s (container format %d.%d)\n", tp_version(), TP_FORMAT_MAJOR, TP_FORMAT_MINOR);
}

/*
 * A closed descriptor 0, 1 or 2 would be given to the next file that is opened, which then gets what is
 * meant for stdout or stderr. They are filled with something that cannot be used in that direction instead.
 */
static void fill_standard_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
        int filled = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
        if (filled >= 0 && filled != fd) close(filled);
    }
}

/* What was printed must have arrived: a full or closed stdout is an error, unless there is one already. */
static int finish_stdout(int status)
{
    errno = 0;
    bool failed = ferror(stdout) != 0;
    if (fflush(stdout) != 0) failed = true;
    int why = errno;
    if (!failed || status != EXIT_OK) return status;
    return fail(EXIT_SYSTEM, "stdout: %s", why ? strerror(why) : "cannot write");
}

static int run_verb(const struct verb *verb, int argc, char **argv)
{
    struct options options;
    int status = EXIT_OK;
    message_verb(verb->name);
    enum parsed parsed = options_parse(verb, argc, argv, &options, &status);
    if (parsed == PARSED_HELP)
        options_help(verb);
    else if (parsed == PARSED_VERSION)
        print_version();
    else if (parsed == PARSED_RUN)
        status = verb->run(&options);
    options_free(&options);
    return status;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) return fail_help("a verb is missing");
    const char *verb = argv[1];
    if (strcmp(verb, "--help") == 0 || strcmp(verb, "-h") == 0) {
        print_help();
        return EXIT_OK;
    }
    if (strcmp(verb, "--version") == 0) {
        print_version();
        return EXIT_OK;
    }
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(verb, verbs[i]->name) == 0) return run_verb(verbs[i], argc, argv);
    if (verb[0] == '-') return fail_help("unknown option %s before the verb", verb);
    return fail_help("unknown verb '%s'", verb);
}

int main(int argc, char **argv)
{
    fill_standard_descriptors();
    signals_ignore_writes();
    int status = finish_stdout(dispatch(argc, argv));
    signals_die();
    return status;
}
