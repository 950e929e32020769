"""What a shell script would run, for the policy. Owns reading scripts; nothing here runs one."""
