# What Debian wants in the tree that becomes a package, beyond what is installed: copyright, changelog, the
# switch as a service of systemd, and manual pages compressed without a time stamp.
set(documentation ${CPACK_TEMPORARY_DIRECTORY}/usr/share/doc/talweg)
foreach(file copyright changelog)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/${file} ${documentation}/${file} COPYONLY
                 FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
endforeach()
configure_file(${CMAKE_CURRENT_LIST_DIR}/talweg-switch.service
               ${CPACK_TEMPORARY_DIRECTORY}/usr/lib/systemd/system/talweg-switch.service COPYONLY
               FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
file(GLOB pages ${CPACK_TEMPORARY_DIRECTORY}/usr/share/man/man1/*.1)
execute_process(COMMAND gzip --force --best --no-name ${pages} ${documentation}/changelog COMMAND_ERROR_IS_FATAL ANY)
