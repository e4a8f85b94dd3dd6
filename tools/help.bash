# Sourced by each of these tools that is in bash: --help prints the comment that the tool begins with.
case ${1-} in
  -h | --help)
    sed -n '2,${/^#/!q;s/^# \{0,1\}//p}' "$0"
    exit
    ;;
esac
