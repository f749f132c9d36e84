#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "convert/text.h"
#include "options.h"
#include "signals.h"

/* A line in a log every so often, where stderr is not a terminal but a bar is asked for. */
#define LOG_INTERVAL 2.0
#define DRAW_INTERVAL 0.1

static struct {
    bool on, terminal, finished;
    size_t drawn; /* columns of the bar that is on the screen */
    double start, last;
    char label[40];
} bar;

double clock_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void put(const char *text, size_t size)
{
    while (size > 0) {
        ssize_t n = write(STDERR_FILENO, text, size);
        if (n <= 0) return;
        text += n;
        size -= (size_t)n;
    }
}

void progress_start(const struct options *options, const char *label)
{
    memset(&bar, 0, sizeof bar);
    bar.terminal = isatty(STDERR_FILENO);
    bar.on = options->progress > 0 || (options->progress < 0 && bar.terminal);
    if (options->quiet) bar.on = false;
    bar.start = clock_seconds();
    bar.last = bar.start;
    tp_text_escape(label, strlen(label), bar.label, sizeof bar.label);
}

void progress_clear(void)
{
    if (bar.drawn == 0) return;
    char blank[256];
    size_t n = bar.drawn < sizeof blank - 2 ? bar.drawn : sizeof blank - 2;
    blank[0] = '\r';
    memset(blank + 1, ' ', n);
    blank[n + 1] = '\r';
    bar.drawn = 0;
    put(blank, n + 2);
}

/* Code points: what the text takes in most scripts. */
static size_t columns_of(const char *text, size_t size)
{
    size_t columns = 0;
    for (size_t i = 0; i < size; i++) columns += ((unsigned char)text[i] & 0xc0) != 0x80;
    return columns;
}

static size_t terminal_columns(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20) return size.ws_col;
    return 80;
}

static void time_text(double seconds, char text[16])
{
    if (!(seconds < 359999)) {
        snprintf(text, 16, "--:--");
        return;
    }
    unsigned s = (unsigned)(seconds + 0.5);
    if (s >= 3600)
        snprintf(text, 16, "%u:%02u:%02u", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, 16, "%u:%02u", s / 60, s % 60);
}

static void draw(uint64_t done, uint64_t total, double now)
{
    char figures[128], left[16];
    double elapsed = now - bar.start;
    double rate = elapsed > 0 ? (double)done / elapsed : 0;
    double share = total > 0 ? (double)done / (double)total : 0;
    if (share > 1) share = 1;
    bool end = total > 0 && done >= total;
    time_text(end ? elapsed : rate > 0 ? (double)(total - done) / rate : 1e9, left);
    if (total > 0)
        snprintf(figures, sizeof figures, "%3d %%  %.1f of %.1f MB  %.1f MB/s  %s %s", (int)(share * 100),
                 (double)done / 1e6, (double)total / 1e6, rate / 1e6, left, end ? "in all" : "left");
    else
        snprintf(figures, sizeof figures, "%.1f MB  %.1f MB/s", (double)done / 1e6, rate / 1e6);

    char line[512];
    if (!bar.terminal) {
        int n = snprintf(line, sizeof line, "%s: %s\n", bar.label, figures);
        if (n > 0) put(line, (size_t)n);
        return;
    }
    size_t columns = terminal_columns();
    if (columns > 120) columns = 120;
    size_t used = columns_of(bar.label, strlen(bar.label)) + strlen(figures) + 4;
    size_t cells = total > 0 && columns > used + 7 ? columns - used - 3 : 0;
    char cell[128];
    if (cells > sizeof cell - 1) cells = sizeof cell - 1;
    size_t full = (size_t)(share * (double)cells);
    for (size_t i = 0; i < cells; i++) cell[i] = i < full ? '#' : '.';
    cell[cells] = 0;
    int n;
    if (cells > 0)
        n = snprintf(line, sizeof line, "\r%s [%s] %s", bar.label, cell, figures);
    else
        n = snprintf(line, sizeof line, "\r%.*s", (int)columns - 1, figures);
    if (n <= 0) return;
    size_t length = (size_t)n < sizeof line ? (size_t)n : sizeof line - 1;
    size_t width = columns_of(line + 1, length - 1);
    size_t before = bar.drawn;
    bar.drawn = width;
    while (width < before && length < sizeof line - 1) {
        line[length++] = ' ';
        width++;
    }
    put(line, length);
}

bool progress_report(void *context, uint64_t done, uint64_t total)
{
    (void)context;
    if (signals_pending()) return false;
    if (!bar.on || bar.finished) return true;
    double now = clock_seconds();
    bool end = total > 0 && done >= total;
    if (!end && now - bar.last < (bar.terminal ? DRAW_INTERVAL : LOG_INTERVAL)) return true;
    /* On a terminal the bar goes away by itself; in a log its end is worth a line. */
    if (end && !bar.terminal) bar.finished = true;
    bar.last = now;
    draw(done, total, now);
    return true;
}

void progress_end(void)
{
    progress_clear();
    bar.on = false;
}
