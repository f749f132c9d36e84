# Joins the kernels' headers as OpenCL gets them: without #include lines, which its compiler could not follow.
#   cmake -DOUT=file -DIN=a.h,b.h -P flatten.cmake
string(REPLACE "," ";" IN "${IN}")
set(all "")
foreach(file ${IN})
  file(READ ${file} text)
  string(REGEX REPLACE "\n#include \"[^\n]*" "\n" text "\n${text}")
  string(APPEND all "${text}\n")
endforeach()
file(WRITE ${OUT} "${all}")
