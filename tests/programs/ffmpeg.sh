# ffmpeg's OpenCL filters: images to the device, two kernels each, images back. Compares every
# frame's checksum.
needs() { command -v ffmpeg >/dev/null || { echo "ffmpeg is not installed"; return 1; }; }
run() {
    ffmpeg -hide_banner -loglevel warning -nostdin -init_hw_device opencl=ocl:0.0 -filter_hw_device ocl \
        -f lavfi -i testsrc2=size=640x360:rate=25:duration=2 \
        -vf 'format=yuv420p,hwupload,unsharp_opencl,avgblur_opencl=sizeX=5,hwdownload,format=yuv420p' -f framemd5 frames.txt -y || return 1
    # The header contains the version of the libraries.
    grep -v '^#' frames.txt >result.txt
    echo "$(wc -l <result.txt) frames" >note.txt
    [ "$(wc -l <result.txt)" -eq 50 ]
}
