# Completion of tensorpress for fish.

# Whether the verb on the command line is one of these.
function __tensorpress_verb
    set -l words (commandline -opc)
    set -q words[2]; and contains -- $words[2] $argv
end

# __tensorpress_option 'VERB VERB ...' ARGUMENTS-OF-complete...
function __tensorpress_option
    complete -c tensorpress -n "__tensorpress_verb $argv[1]" $argv[2..]
end

set -l writing compress decompress extract
set -l working $writing verify convert load
set -l no_verb 'test (count (commandline -opc)) = 1'
set -l all $working inspect bench doctor

complete -c tensorpress -f -n $no_verb -s h -l help -d 'Show all verbs'
complete -c tensorpress -f -n $no_verb -l version -d 'Show the version'
complete -c tensorpress -f -n $no_verb -a compress -d 'Convert a checkpoint or a folder into a container'
complete -c tensorpress -f -n $no_verb -a decompress -d 'Restore the original file or folder'
complete -c tensorpress -f -n $no_verb -a verify -d 'Check a container, or compare it with the original'
complete -c tensorpress -f -n $no_verb -a inspect -d 'Show what is in a checkpoint, folder or container'
complete -c tensorpress -f -n $no_verb -a extract -d 'Write the bytes of one tensor'
complete -c tensorpress -f -n $no_verb -a load -d 'Load all tensors onto a device, decoding there'
complete -c tensorpress -f -n $no_verb -a convert -d 'To a DFloat11 checkpoint, or back from one'
complete -c tensorpress -f -n $no_verb -a bench -d 'Measure ratio and speed in memory'
complete -c tensorpress -f -n $no_verb -a doctor -d 'Show kernels, devices and versions, and test them'

__tensorpress_option "$all" -s h -l help -d 'Show the options of the verb'
__tensorpress_option "$all" -l version -d 'Show the version'

__tensorpress_option "$writing convert" -s o -l output -r -F -d 'Write to PATH'
__tensorpress_option "$writing" -s c -l stdout -d 'Write to standard output'
__tensorpress_option "$writing convert" -s f -l force -d 'Overwrite an existing output'
__tensorpress_option "$working bench" -s j -l threads -x -d 'Number of threads'
__tensorpress_option "$working" -l progress -d 'Show progress, also where stderr is no terminal'
__tensorpress_option "$working" -l no-progress -d 'Show no progress'
__tensorpress_option "$working" -s q -l quiet -d 'Say nothing but errors'
__tensorpress_option "$working" -s v -l verbose -d 'Say more'

__tensorpress_option compress -s l -l level -x -a 'fast default max' -d 'How hard to try'
__tensorpress_option compress -l codec -x -a 'auto raw lz4 bg-lz4 rans df11' -d 'How to code'
__tensorpress_option compress -l sha256 -d "Also store every file's SHA-256"
__tensorpress_option compress -l dry-run -d 'Report the sizes, write nothing'
__tensorpress_option 'compress decompress verify' -l direct -d 'Read and write large files past the page cache'
__tensorpress_option 'compress convert load' -l verify -d 'Decode again and compare'
__tensorpress_option 'decompress extract' -l file -x -d 'The file in the container, by its stored path'
__tensorpress_option decompress -l max-output -x -d 'Refuse to restore more than SIZE bytes'
__tensorpress_option verify -l against -r -F -d 'Also compare with this file or folder'
__tensorpress_option extract -l slice -x -d 'Rows A:B of the slowest dimension'
__tensorpress_option convert -l to -x -a 'df11 safetensors' -d Format
__tensorpress_option convert -l pattern-dict -r -F -d 'JSON: which weights are coded together'
__tensorpress_option convert -l reference -r -F -d 'A checkpoint that gives names, shapes and files'
__tensorpress_option 'inspect bench load' -l json -d 'JSON on standard output'
__tensorpress_option inspect -l tensors -d 'Also a line for every tensor'
__tensorpress_option bench -l kernel -x -a 'portable avx2 avx512bw avx512 neon' -d 'Only this CPU kernel'
__tensorpress_option load -l device -x -a 'cpu cuda opencl' -d 'Where to'

__tensorpress_option doctor -f
functions -e __tensorpress_option
