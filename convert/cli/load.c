/* tensorpress load */
#include <stdio.h>
#include <string.h>

#include "convert/text.h"
#include "json.h"
#include "message.h"
#include "progress.h"
#include "signals.h"
#include "verbs.h"

struct result {
    tp_device_info device;
    tp_load_stats stats;
    bool verified;
};

static void print_json(const struct result *r)
{
    struct json json;
    json_init(&json, stdout);
    json_open(&json, '{');
    json_key(&json, "device");
    json_string(&json, r->device.name, strlen(r->device.name));
    json_key(&json, "backend");
    json_string(&json, r->device.backend, strlen(r->device.backend));
    json_key(&json, "tensors");
    json_u64(&json, r->stats.tensors);
    json_key(&json, "raw_bytes");
    json_u64(&json, r->stats.raw_bytes);
    json_key(&json, "stored_bytes");
    json_u64(&json, r->stats.stored_bytes);
    json_key(&json, "read_s");
    json_decimal(&json, r->stats.read_s, 6);
    json_key(&json, "decode_s");
    json_decimal(&json, r->stats.decode_s, 6);
    json_key(&json, "total_s");
    json_decimal(&json, r->stats.total_s, 6);
    json_key(&json, "decoded_on_device_bytes");
    json_u64(&json, r->stats.decoded_on_device_bytes);
    json_key(&json, "decoded_on_host_bytes");
    json_u64(&json, r->stats.decoded_on_host_bytes);
    json_key(&json, "verified");
    json_bool(&json, r->verified);
    json_close(&json, '}');
}

static void print_text(const char *name, const struct result *r)
{
    char shown[4096];
    const double seconds = r->stats.total_s;
    printf("%s: %s, %s on %s in %.3f s, %.1f MB/s%s\n",
           tp_text_escape(name, strlen(name), shown, sizeof shown), counted(r->stats.tensors, "tensor"),
           counted(r->stats.raw_bytes, "byte"), r->device.name, seconds,
           seconds > 0 ? (double)r->stats.raw_bytes / 1e6 / seconds : 0, r->verified ? ": bit-exact" : "");
}

static tp_status load(const struct opened *opened, tp_device *device, const struct options *options,
                      struct result *result, tp_error *error)
{
    tp_loader *loader;
    tp_load_options settings;
    tp_load_options_init(&settings);
    settings.threads = options->threads;
    settings.progress = progress_report;
    tp_status status = tp_loader_create(device, &settings, &loader, error);
    if (status != TP_OK) return status;
    size_t truncated = 0;
    status = tp_loader_add_matching(loader, opened->reader, "*", NULL, &truncated, error);
    if (status == TP_OK && truncated) {
        char line[4096 + 160]; /* a path and a sentence */
        snprintf(line, sizeof line, "%.4095s: %s left out: the file ends before %s", opened->name,
                 counted(truncated, "tensor"), truncated == 1 ? "its end" : "their ends");
        warn(line);
    }
    if (status == TP_OK) {
        progress_start(options, "load");
        status = tp_loader_run(loader, error);
        progress_end();
    }
    tp_loader_stats(loader, &result->stats);
    if (status == TP_OK && options->verify) {
        progress_start(options, "verify");
        status = tp_loader_verify(loader, error);
        progress_end();
        result->verified = status == TP_OK;
    }
    tp_loader_close(loader);
    return status;
}

static int run(const struct options *options)
{
    const char *input = options->arguments[0];
    struct stat stat;
    struct opened opened;
    struct result result;
    tp_device *device;
    tp_error error;
    memset(&result, 0, sizeof result);
    memset(&error, 0, sizeof error);

    /* A device's name can be wrong whatever the file is. */
    tp_status status = tp_device_open(options->device ? options->device : "cpu", &device, &error);
    if (status == TP_INVALID_ARGUMENT)
        return fail_usage("--device %s: not a device's name; use cpu, cuda, cuda:N, opencl or opencl:N",
                          options->device);
    if (status != TP_OK) return fail_error(status, &error);
    tp_device_describe(device, &result.device);

    int code = input_stat(input, &stat);
    if (code == EXIT_OK && S_ISDIR(stat.st_mode))
        code = fail(EXIT_UNSUPPORTED, "%s: is a folder; this version loads from single files only",
                    is_stdin(input) ? "stdin" : input);
    if (code == EXIT_OK) code = reader_open(input, &opened);
    if (code == EXIT_OK) {
        signals_install();
        status = load(&opened, device, options, &result, &error);
        if (status != TP_OK)
            code = fail_error(status, &error);
        else if (options->json)
            print_json(&result);
        else if (!options->quiet)
            print_text(opened.name, &result);
        if (status == TP_OK && options->verbose)
            note("%s: %s: %s decoded there, %s on the host, reading %.3f s, decoding %.3f s", opened.name,
                 result.device.description, counted(result.stats.decoded_on_device_bytes, "byte"),
                 counted(result.stats.decoded_on_host_bytes, "byte"), result.stats.read_s,
                 result.stats.decode_s);
        reader_close(&opened);
    }
    tp_device_close(device);
    return code;
}

const struct verb verb_load = {
    .name = "load",
    .usage = "FILE [--device NAME] [--verify] [--json] [options]",
    .about =
        "Loads every tensor of a container or plain checkpoint onto a device, decoding there, and prints "
        "how "
        "fast that\n"
        "was. Only what is stored as lz4 is decoded by the host. --verify copies all tensors back and "
        "compares "
        "them with\n"
        "the file, whose checksums are checked. 'tensorpress doctor' lists the devices. FILE may be - for "
        "stdin.",
    .examples = "  tensorpress load model.safetensors.tpress --verify\n"
                "  tensorpress load model.safetensors.tpress --device cuda:1 --json\n"
                "  tensorpress load model.safetensors --device opencl\n",
    .options = HAS(DEVICE) | HAS(VERIFY) | HAS(JSON) | HAS(THREADS) | HAS(PROGRESS) | HAS(NO_PROGRESS) |
               HAS(QUIET) | HAS(VERBOSE),
    .min_arguments = 1,
    .max_arguments = 1,
    .argument_names = "FILE",
    .run = run,
};
