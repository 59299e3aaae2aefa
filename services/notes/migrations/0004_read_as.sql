-- By which rules titles and tags were read from the files (`metadata.EDITION`); null where all files are to be read anew.
ALTER TABLE workspaces ADD COLUMN read_as int;
