#include "signals.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>

static const int handled[] = {SIGINT, SIGTERM, SIGHUP};
static volatile sig_atomic_t pending;

static void set_handler(int number, void (*handler)(int))
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

static void on_signal(int number)
{
    pending = number;
    for (size_t i = 0; i < sizeof handled / sizeof *handled; i++) {
        struct sigaction old;
        if (sigaction(handled[i], NULL, &old) == 0 && old.sa_handler == on_signal)
            set_handler(handled[i], SIG_DFL);
    }
}

void signals_ignore_writes(void)
{
    set_handler(SIGPIPE, SIG_IGN);
    set_handler(SIGXFSZ, SIG_IGN);
}

void signals_install(void)
{
    for (size_t i = 0; i < sizeof handled / sizeof *handled; i++) {
        struct sigaction old;
        /* What the caller had ignored (nohup, a shell's background job) stays ignored. No SA_RESTART: a
         * read that waits for a pipe must end. */
        if (sigaction(handled[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            set_handler(handled[i], on_signal);
    }
}

bool signals_pending(void)
{
    return pending != 0;
}

void signals_die(void)
{
    int number = pending;
    if (number == 0) return;
    set_handler(number, SIG_DFL);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    raise(number);
}
