# Completion of tensorpress for bash: verbs, options, values; file names come from bash itself. Needs nothing but bash.

_tensorpress()
{
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} verb=${COMP_WORDS[1]} words='' i
    local output='-o --output -c --stdout -f --force'
    local work='-j --threads --progress --no-progress -q --quiet -v --verbose'
    COMPREPLY=()

    if ((COMP_CWORD == 1)); then
        words='compress decompress verify inspect extract load convert bench doctor -h --help --version'
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
        return
    fi
    for ((i = 2; i < COMP_CWORD; i++)); do
        [[ ${COMP_WORDS[i]} != -- ]] || return # only arguments follow
    done

    # Where '=' separates words, "--level=fa" is three of them.
    if [[ $word == = ]]; then
        word=''
    elif [[ $before == = ]]; then
        before=${COMP_WORDS[COMP_CWORD - 2]}
    fi

    # The value of an option?
    case $verb:$before in
    compress:-l | compress:--level) words='fast default max' ;;
    compress:--codec) words='auto raw lz4 bg-lz4 rans df11' ;;
    convert:--to) words='df11 safetensors' ;;
    load:--device) words='cpu cuda opencl' ;;
    bench:--kernel) words='portable avx2 avx512bw avx512 neon' ;;
    *:-j | *:--threads | decompress:--max-output | extract:--slice | decompress:--file | extract:--file)
        compopt +o default +o bashdefault 2>/dev/null # a number, or a name that only the container knows
        return
        ;;
    compress:-o | decompress:-o | extract:-o | convert:-o | *:--output) return ;;
    verify:--against | convert:--pattern-dict | convert:--reference) return ;;
    *)
        [[ $word == -* ]] || return
        case $verb in
        compress) words="$output $work -l --level --codec --sha256 --verify --dry-run --direct" ;;
        decompress) words="$output $work --file --max-output --direct" ;;
        verify) words="$work --against --direct" ;;
        inspect) words='--json --tensors' ;;
        extract) words="$output $work --file --slice" ;;
        convert) words="-o --output -f --force $work --to --pattern-dict --reference --verify" ;;
        bench) words='--json --kernel -j --threads' ;;
        load) words="$work --device --verify --json" ;;
        doctor) ;;
        *) return ;;
        esac
        words+=' -h --help --version'
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}

complete -o bashdefault -o default -F _tensorpress tensorpress
